"""What every source does the same way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.samples import Collector, LoadReport, check_cut, optional_seconds, seconds


def collect(
    rows: Iterable[tuple[str, Any]],
    parse: Callable[[Any, str], Sample],
    *,
    path: Path,
    videos: Path,
    wanted: Callable[[Sample], bool] | None = None,
) -> LoadReport:
    """Parse every row; a row that raises DataError is named in the report with its reason.

    Args:
        rows: ("file:row", raw row).
        parse: (raw row, where) -> Sample whose video path starts from `videos`.
        wanted: rows for which it is false are left out without counting as rejected (a split that was not asked for).

    Raises:
        DataError: no row is usable.
    """
    collector = Collector()
    for where, row in rows:
        try:
            sample = parse(row, where)
            if wanted is None or wanted(sample):
                collector.add(where, _at(sample, videos))
        except DataError as error:
            collector.reject(where, str(error))
    return collector.report().require_samples(path)


def _at(sample: Sample, videos: Path) -> Sample:
    if sample.video is None:
        return sample
    return replace(sample, video=replace(sample.video, path=str(videos / sample.video.path)))


def read_text(path: Path) -> str:
    """The whole file as text.

    Raises:
        DataError: missing, a folder, or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason})") from error


def json_list(path: Path) -> Iterator[tuple[str, Any]]:
    """("file:item k", item) of a JSON file that holds one list; k counts from 1."""
    try:
        items = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg}, column {error.colno})") from error
    if not isinstance(items, list):
        raise DataError(f"{path}: expected a JSON list, got {type(items).__name__}")
    return ((f"{path}:item {k}", item) for k, item in enumerate(items, 1))


def mapping(row: Any, where: str) -> Mapping[str, Any]:
    """The row itself when it is a JSON object."""
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: a row is a JSON object, not {type(row).__name__}")
    return row


def below(path: str, prefix: str) -> str:
    """`path` without the leading folders of whoever published it, so that it starts from the `videos` folder.

    Example: below("./dataset/videos/a.mp4", "./dataset/videos") -> "a.mp4"; another prefix changes nothing.
    """
    whole, start = PurePosixPath(path), PurePosixPath(prefix)
    return str(whole.relative_to(start)) if prefix and whole.is_relative_to(start) else path


def published_cut(row: Mapping[str, Any], path: str, *, start: str, end: str, where: str) -> VideoRef:
    """The clip of a row with "duration" and optional cut keys, of which the row does not say whether the file has it.

    Whoever opens the file decides by its length (vtgrl/data/video/cut.py).
    """
    begins, ends = (optional_seconds(row, key, where=where) for key in (start, end))
    duration = seconds(row.get("duration"), where=f"{where}: duration")
    ref = VideoRef(path, begins, ends, duration, maybe_cut=begins is not None or ends is not None)
    check_cut(ref, where=where)
    return ref


def extra(row: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Those of the keys that the row has, for `meta`."""
    return {key: row[key] for key in keys if row.get(key) is not None}
