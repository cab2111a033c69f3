"""Canonical rows: `Sample` <-> the dict that one line of JSONL holds, checked strictly; every error names file and row.

A line: {"id", "task": "vtg|qa|text", "video": {"path", "start", "end", "duration", "maybe_cut"}, "query", "windows": [[s, e], ...],
"options", "answer", "answer_kind", "captions": [{"start", "end", "text"}], "split", "source", "meta"}; seconds, relative to the cut clip.
Only "id", "task" and "query" are always needed; keys at their default may be left out.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.types import Caption, Sample, VideoRef, Window

TASKS = ("vtg", "qa", "text")
SAMPLE_KEYS = (
    "id", "task", "video", "query", "windows", "options", "answer", "answer_kind", "captions", "split", "source", "meta",
)  # fmt: skip
VIDEO_KEYS = ("path", "start", "end", "duration", "maybe_cut")
CAPTION_KEYS = ("start", "end", "text")
FLOAT_NOISE = 0.02
"""Seconds by which a window may pass the duration before it counts as too long (95.04 against 95.03999 is no fault)."""
ZERO_LENGTH = "zero_length"
"""Key in `meta` that says: this row has a window with start == end, kept as the benchmark published it."""


@dataclass(frozen=True)
class LoadReport:
    """What a source read: usable samples, the rows it could not use and what it changed, each with its place."""

    samples: tuple[Sample, ...]
    rejected: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def require_samples(self, path: object) -> LoadReport:
        """Itself, or a DataError that quotes the first reason when nothing at all was usable."""
        if self.samples:
            return self
        reason = f"first: {self.rejected[0][0]}: {self.rejected[0][1]}" if self.rejected else "it holds no rows"
        raise DataError(f"{path}: no usable row; {reason}")


# --- reading one row ---------------------------------------------------------------------------------------------


def sample_from_dict(row: Mapping[str, Any], *, where: str) -> Sample:
    """Check one canonical row and make a Sample.

    Args:
        row: the parsed JSON object.
        where: "file:row", put in front of every message.

    Raises:
        DataError: an unknown or missing key, a wrong type, a number that is not finite, start > end, a window that
            starts after the clip's end. A window of zero length is kept; `meta["zero_length"]` is then true.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: a row is a JSON object, not {type(row).__name__}")
    known_keys(row, SAMPLE_KEYS, where=where)
    task = text_of(row, "task", where=where)
    if task not in TASKS:
        raise DataError(f"{where}: task {task!r}: write one of {', '.join(TASKS)}")
    video = None if row.get("video") is None else video_from_dict(row["video"], where=where)
    if video is None and task != "text":
        raise DataError(f'{where}: task {task!r} needs "video"; use task "text" for a question without a clip')
    sample = Sample(
        id=text_of(row, "id", where=where),
        task=task,  # type: ignore[arg-type]
        query=text_of(row, "query", where=where),
        video=video,
        windows=tuple(window_of(w, where=f"{where}: windows[{i}]") for i, w in enumerate(list_of(row, "windows", where=where))),
        options=tuple(_strings(list_of(row, "options", where=where), "options", where=where)),
        answer=optional_text(row, "answer", where=where),
        answer_kind=optional_text(row, "answer_kind", where=where),
        captions=tuple(_caption(c, where=f"{where}: captions[{i}]") for i, c in enumerate(list_of(row, "captions", where=where))),
        split=optional_text(row, "split", where=where) or "train",
        source=optional_text(row, "source", where=where) or "",
        meta=_meta(row, where=where),
    )
    return flag_zero_length(sample)


def video_from_dict(value: Any, *, where: str) -> VideoRef:
    """The "video" object of a row."""
    if not isinstance(value, Mapping):
        raise DataError(f'{where}: "video" is an object with "path", not {type(value).__name__}')
    known_keys(value, VIDEO_KEYS, where=f"{where}: video")
    start, end, duration = (optional_seconds(value, key, where=f"{where}: video") for key in ("start", "end", "duration"))
    maybe_cut = value.get("maybe_cut", False)
    if not isinstance(maybe_cut, bool):
        raise DataError(f"{where}: video: maybe_cut is true or false, not {maybe_cut!r}")
    ref = VideoRef(text_of(value, "path", where=f"{where}: video"), start, end, duration, maybe_cut)
    check_cut(ref, where=where)
    return ref


def check_cut(ref: VideoRef, *, where: str) -> None:
    """0 <= start < end and duration > 0, as far as they are given."""
    if ref.start is not None and ref.start < 0:
        raise DataError(f"{where}: video start {ref.start} is negative")
    if ref.end is not None and ref.end <= (ref.start or 0.0):
        raise DataError(f"{where}: video end {ref.end} is not after its start {ref.start or 0.0}")
    if ref.duration is not None and ref.duration <= 0:
        raise DataError(f"{where}: video duration {ref.duration} is not positive")


def window_of(value: Any, *, where: str) -> Window:
    """[start, end] in seconds with 0 <= start <= end."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise DataError(f"{where}: a window is [start, end], not {value!r}")
    start, end = (seconds(v, where=where) for v in value)
    if start < 0:
        raise DataError(f"{where}: start {start} is negative")
    if start > end:
        raise DataError(f"{where}: start {start} is after end {end}")
    return (start, end)


def flag_zero_length(sample: Sample) -> Sample:
    """Say in `meta` that a window has no length: no prediction can overlap it."""
    if any(start == end for start, end in sample.windows) and not sample.meta.get(ZERO_LENGTH):
        return replace(sample, meta={**sample.meta, ZERO_LENGTH: True})
    return sample


def _caption(value: Any, *, where: str) -> Caption:
    if not isinstance(value, Mapping):
        raise DataError(f'{where}: a caption is {{"start", "end", "text"}}, not {value!r}')
    known_keys(value, CAPTION_KEYS, where=where)
    start, end = window_of([value.get("start"), value.get("end")], where=where)
    return Caption(start, end, text_of(value, "text", where=where))


def _meta(row: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    meta = row.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise DataError(f'{where}: "meta" is an object, not {type(meta).__name__}')
    return dict(meta)


# --- single values -----------------------------------------------------------------------------------------------


def known_keys(row: Mapping[str, Any], keys: Sequence[str], *, where: str) -> None:
    """DataError for the first key that is not in `keys`, with the nearest one that is."""
    for key in row:
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"keys are: {', '.join(keys)}"
            raise DataError(f"{where}: unknown key {key!r}; {hint}")


def seconds(value: Any, *, where: str) -> float:
    """A finite number, as float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{where}: {value!r} is not a number of seconds")
    if not math.isfinite(value):
        raise DataError(f"{where}: {value!r} is not finite")
    return float(value)


def optional_seconds(row: Mapping[str, Any], key: str, *, where: str) -> float | None:
    """A finite number, or None when the key is absent or null. 0.0 stays 0.0."""
    value = row.get(key)
    return None if value is None else seconds(value, where=f"{where}: {key}")


def text_of(row: Mapping[str, Any], key: str, *, where: str) -> str:
    """A string with something in it."""
    value = row.get(key)
    if value is None:
        raise DataError(f"{where}: {key!r} is missing")
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {key!r} must be a text that is not empty, not {value!r}")
    return value


def optional_text(row: Mapping[str, Any], key: str, *, where: str) -> str | None:
    """A string, or None when the key is absent or null."""
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{where}: {key!r} must be a text, not {value!r}")
    return value


def list_of(row: Mapping[str, Any], key: str, *, where: str) -> list[Any]:
    """A list; absent or null is empty."""
    value = row.get(key)
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{where}: {key!r} is a list, not {type(value).__name__}")
    return list(value)


def _strings(values: list[Any], key: str, *, where: str) -> list[str]:
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise DataError(f"{where}: {key}[{i}] must be a text, not {value!r}")
    return values


# --- writing -----------------------------------------------------------------------------------------------------


def sample_to_dict(sample: Sample) -> dict[str, Any]:
    """The canonical dict of a sample, keys in canonical order, keys at their default left out."""
    row: dict[str, Any] = {"id": sample.id, "task": sample.task}
    if sample.video is not None:
        row["video"] = _video_to_dict(sample.video)
    row["query"] = sample.query
    optional = {
        "windows": [list(w) for w in sample.windows],
        "options": list(sample.options),
        "answer": sample.answer,
        "answer_kind": sample.answer_kind,
        "captions": [{"start": c.start, "end": c.end, "text": c.text} for c in sample.captions],
        "split": sample.split,
        "source": sample.source,
        "meta": dict(sample.meta),
    }
    row.update({key: value for key, value in optional.items() if value not in (None, "", [], {})})
    return row


def _video_to_dict(ref: VideoRef) -> dict[str, Any]:
    row: dict[str, Any] = {"path": ref.path}
    row.update({k: v for k, v in (("start", ref.start), ("end", ref.end), ("duration", ref.duration)) if v is not None})
    if ref.maybe_cut:
        row["maybe_cut"] = True
    return row


# --- many rows ---------------------------------------------------------------------------------------------------


class Collector:
    """Gathers samples of one file: unique ids, windows clipped to the clip, unusable rows named.

    Example: c = Collector(); c.add(where, sample_from_dict(row, where=where)); c.report()
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._rejected: list[tuple[str, str]] = []
        self._clipped: list[str] = []
        self._noise = 0
        self._zero = 0
        self._seen: dict[str, str] = {}

    def add(self, where: str, sample: Sample) -> None:
        """Take a sample.

        Raises:
            DataError: its id has been used, or a window lies outside the clip.
        """
        first = self._seen.get(sample.id)
        if first is not None:
            raise DataError(f"{where}: id {sample.id!r} is already used at {first}")
        clipped, excess = clip_windows(sample, where=where)
        self._seen[sample.id] = where
        if excess > FLOAT_NOISE:
            place = where.rpartition(":")[2]
            self._clipped.append(f"{'row ' if place.isdigit() else ''}{place} by {excess:.2f} s")
        elif excess > 0:
            self._noise += 1
        self._zero += bool(clipped.meta.get(ZERO_LENGTH))
        self._samples.append(clipped)

    def reject(self, where: str, reason: str) -> None:
        """Name a row that cannot be used. A reason that repeats the place loses it."""
        self._rejected.append((where, reason.removeprefix(f"{where}: ")))

    def report(self) -> LoadReport:
        """All that was gathered."""
        notes = []
        if self._clipped:
            places = _shorten(self._clipped)
            notes.append(f"{len(self._clipped)} rows have a window that ends after the clip; ended with it: {places}")
        if self._noise:
            notes.append(f"{self._noise} rows have a window that ends after the clip by {FLOAT_NOISE} s or less; ended with it")
        if self._zero:
            notes.append(f"{self._zero} rows have a window of zero length: kept, no prediction can overlap them")
        counts = {
            "clipped": len(self._clipped) + self._noise,
            "clipped_noise": self._noise,
            "zero_length": self._zero,
            "rejected": len(self._rejected),
        }
        return LoadReport(tuple(self._samples), tuple(self._rejected), tuple(notes), counts)


def clip_windows(sample: Sample, *, where: str) -> tuple[Sample, float]:
    """End windows at the clip's stated duration; -> (sample, seconds by which the longest went past it, 0 if none).

    More than float noise leaves the published windows in `meta["unclipped_windows"]`.

    Raises:
        DataError: a window starts at or after the end of the clip.
    """
    duration = None if sample.video is None else sample.video.duration
    if duration is None or not sample.windows:
        return sample, 0.0
    for start, end in sample.windows:
        if start >= duration:
            raise DataError(f"{where}: window [{start}, {end}] starts after the clip's end ({duration} s)")
    excess = max(0.0, max(end for _, end in sample.windows) - duration)
    if excess == 0.0:
        return sample, 0.0
    windows = tuple((start, min(end, duration)) for start, end in sample.windows)
    meta = {**sample.meta, "unclipped_windows": [list(w) for w in sample.windows]} if excess > FLOAT_NOISE else sample.meta
    return replace(sample, windows=windows, meta=meta), excess


def _shorten(places: Iterable[str], limit: int = 3) -> str:
    items = list(places)
    return ", ".join(items[:limit]) + (f", and {len(items) - limit} more" if len(items) > limit else "")
