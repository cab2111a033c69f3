"""Are the videos of these rows there, whole, and what the rows say they are? Behind `vtgrl data check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vtgrl.core.errors import DataError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.load import load_samples
from vtgrl.data.prompts.text import no_special_token
from vtgrl.data.video.reader import BACKEND, ClipLoader
from vtgrl.data.video.types import Clip, FramePolicy

ENDS_ONLY = FramePolicy(fps=1e-6, min_frames=2, max_frames=2, min_pixels=1, max_pixels=64 * 64, total_pixels=2 * 64 * 64, unit=4)
"""The first and the last frame of a clip, small."""
LOOK_AHEAD = 64
"""Clips announced to the loader at a time."""


@dataclass(frozen=True)
class CheckReport:
    """What was found.

    samples: rows that could be read; usable: those of them whose clip can be read and whose row fits it. clips: distinct
    clips (file and cut). rejected: (file:row, reason) of rows that could not be read. broken: (video, reason, how many
    samples need it). rows: (sample id, what is wrong with a row whose file may be fine). notes: what was changed or put
    up with.
    """

    samples: int
    usable: int
    clips: int
    rejected: tuple[tuple[str, str], ...] = ()
    broken: tuple[tuple[str, str, int], ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Every row and every clip can be read, and they fit together."""
        return not (self.rejected or self.broken or self.rows)


def check_file(
    path: Path | str,
    *,
    source: str | Component = "jsonl",
    videos: Path | str | None = None,
    backend: str = BACKEND,
    timeout_s: float = 60.0,
    workers: int = 0,
) -> CheckReport:
    """Read an annotation file and hold its rows against its videos.

    Args:
        source: how to read it; a name stands for the component with its default settings.
        videos: folder that relative video paths start from; None: the folder of `path`.

    Raises:
        DataError: the file itself cannot be read, or holds no usable row.
    """
    component = Component("source", source, get("source", source).config()) if isinstance(source, str) else source
    read = load_samples(component, path=path, videos=videos or "")
    report = check_samples(read.samples, backend=backend, timeout_s=timeout_s, workers=workers)
    return replace(report, rejected=read.rejected, notes=(*read.notes, *report.notes))


def check_samples(samples: Sequence[Sample], *, backend: str = BACKEND, timeout_s: float = 60.0, workers: int = 0) -> CheckReport:
    """Decode the first and last frame of every clip, each within `timeout_s`, and hold the rows against them.

    Never stops at a broken file; all are listed.
    """
    groups: dict[VideoRef, list[Sample]] = {}
    for sample in samples:
        if sample.video is not None:
            groups.setdefault(sample.video, []).append(sample)
    broken, notes, unusable = [], [], set()
    rows = [(s.id, reason) for s in samples if (reason := _text_fault(s))]
    refs = list(groups)
    with ClipLoader(ENDS_ONLY, backend=backend, timeout_s=timeout_s, workers=workers) as loader:
        for position, ref in enumerate(refs):
            if position % LOOK_AHEAD == 0:
                loader.prefetch(refs[position : position + LOOK_AHEAD])
            try:
                clip = loader.load(ref)
            except DataError as error:
                broken.append((ref.path, str(error).removeprefix(f"{ref.path}: "), len(groups[ref])))
                unusable |= {s.id for s in groups[ref]}
                continue
            notes += [f"{ref.path}: {note}" for note in clip.notes]
            rows += [(s.id, reason) for s in groups[ref] if (reason := _window_fault(s, clip))]
    unusable |= {row for row, _ in rows}
    usable = len(samples) - len(unusable)
    return CheckReport(len(samples), usable, len(refs), broken=tuple(broken), rows=tuple(rows), notes=tuple(notes))


def _text_fault(sample: Sample) -> str:
    """Why the row's text cannot go into a prompt, "" when it can."""
    try:
        for text in (sample.query, *sample.options, *(c.text for c in sample.captions)):
            no_special_token(text, sample)
    except DataError as error:
        return str(error).removeprefix(f"sample {sample.id!r}: ")
    return ""


def _window_fault(sample: Sample, clip: Clip) -> str:
    """Why the row's windows do not lie in the clip, "" when they do."""
    outside = [w for w in sample.windows if w[0] >= clip.duration]
    if not outside:
        return ""
    return f"window [{outside[0][0]}, {outside[0][1]}] starts after the clip's end ({clip.duration:.2f} s)"
