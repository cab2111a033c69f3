"""Which part of a file a row means, once the real length of the file is known."""

from __future__ import annotations

from vtgrl.core.errors import DataError
from vtgrl.core.types import VideoRef

SLACK = 0.5
"""Seconds by which a file may miss the length that its row states: containers round, cutters stop at frames."""


def is_already_cut(ref: VideoRef, length: float) -> bool:
    """Whether a file of this length is the cut clip itself rather than the video it was cut from.

    Only asked for rows that say so (`maybe_cut`): some published rows name hosted files that were cut before, others
    the whole video, with the same keys. The length decides: it is nearer to the clip's than to where the cut ends.

    Example: start 39.0, end 84.7, duration 45.7: a file of 45.8 s is the clip, one of 211 s is not.
    """
    if not ref.maybe_cut or ref.end is None:
        return False
    clip = ref.duration if ref.duration is not None else ref.end - (ref.start or 0.0)
    return abs(length - clip) <= SLACK and abs(length - clip) <= abs(length - ref.end)


def resolve_cut(ref: VideoRef, length: float) -> tuple[float, float, tuple[str, ...]]:
    """(start, end, notes) of the part to show, in seconds of the file. A start of 0.0 is a start like any other.

    Raises:
        DataError: the cut begins after the file's end, or a file that may be cut is neither the clip nor the whole.
    """
    if is_already_cut(ref, length):
        return 0.0, length, ()
    start = 0.0 if ref.start is None else ref.start
    end = length if ref.end is None else ref.end
    if start >= length or (ref.maybe_cut and end > length + SLACK):
        raise DataError(
            f"{ref.path}: the row means {start:.2f} s to {end:.2f} s, but the file is {length:.2f} s long; is it the right file?"
        )
    notes = []
    if end > length + SLACK:
        notes.append(f"the row's cut ends at {end:.2f} s, the file at {length:.2f} s; cut there")
    end = min(end, length)
    if ref.duration is not None and abs(ref.duration - (end - start)) > max(4 * SLACK, 0.05 * ref.duration):
        notes.append(f"the row states {ref.duration:.2f} s, the clip is {end - start:.2f} s long; is it the right file?")
    return start, end, tuple(notes)
