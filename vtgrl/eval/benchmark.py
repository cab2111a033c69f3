"""What the benchmarks share: their config, the digest of a ground truth, raw rows into samples.

A benchmark is `@register("benchmark", NAME, config=...) def f(path, *, config) -> GroundTruth`, one file each in bench/.
Windows are kept as published: clipping is a protocol's choice, made when scoring. (The training sources clip.)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.types import Sample, VideoRef, Window
from vtgrl.data.sources.common import read_text
from vtgrl.eval.predictions import content_key
from vtgrl.eval.protocol import Protocol, protocols
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class BenchConfig:
    """Settings of a benchmark.

    protocols: the named ways to run and score it. official_clips: its official ranked evaluator uses clipped windows.
    length_ranges: the official ranked evaluator reports short, middle and long windows.
    """

    protocols: ClassVar[Mapping[str, Protocol]] = protocols()
    official_clips: ClassVar[bool] = False
    length_ranges: ClassVar[bool] = False


def gt_digest(samples: Sequence[Sample]) -> str:
    """16 hex digits over video, cut, query and true windows of every query, whatever their order and their ids."""
    lines = sorted(
        repr((*content_key(s.video.path if s.video else "", s.query), s.video.start if s.video else None, s.windows)) for s in samples
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Gather:
    """Collects the rows of one annotation file: ids unique, unusable rows named with their reason."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Sample] = []
        self.rejected: list[tuple[str, str]] = []
        self._copies: dict[str, list[str]] = {}

    def add(
        self,
        where: str,
        *,
        id: Any,
        video: Any,
        query: Any,
        windows: Any,
        duration: Any = None,
        start: Any = None,
        end: Any = None,
        maybe_cut: bool = False,
        **meta: Any,
    ) -> None:
        """One query; a row that cannot be used is noted, never guessed at. A repeated id becomes "id#2": rows never fold."""
        name = str(id)
        copies = self._copies.setdefault(name, [])
        try:
            sample = Sample(
                id=name if not copies else f"{name}#{len(copies) + 1}",
                task="vtg",
                query=_text(query, "query", where),
                video=VideoRef(
                    _text(video, "video", where), _seconds(start, where), _seconds(end, where), _length(duration, where), maybe_cut
                ),
                windows=windows_of(windows, where),
                split="test",
                meta=meta,
            )
            copies.append(sample.id)
            self.rows.append(sample)
        except DataError as error:
            self.rejected.append((where, str(error).removeprefix(f"{where}: ")))

    def reject(self, where: str, reason: str) -> None:
        """Note a row that could not even be split into fields."""
        self.rejected.append((where, reason))

    def truth(self, *, aliases: Mapping[str, str] | None = None, notes: Sequence[str] = ()) -> GroundTruth:
        """All that was gathered.

        Raises:
            DataError: no usable row.
        """
        if not self.rows:
            reason = f"first: {self.rejected[0][0]}: {self.rejected[0][1]}" if self.rejected else "it holds no rows"
            raise DataError(f"{self.path}: no usable query; {reason}")
        copies = {name: tuple(ids) for name, ids in self._copies.items() if len(ids) > 1}
        extra = [f"{len(copies)} ids occur more than once (first {next(iter(copies))!r}): later rows are id#2, id#3, ..."] if copies else []
        return GroundTruth(tuple(self.rows), aliases or {}, tuple(self.rejected), (*notes, *extra), copies)


def numbered_aliases(samples: Sequence[Sample], *forms: str) -> dict[str, str]:
    """Other ids of the k-th row (k from 0), each form with {k}: an id that a row owns is never an alias."""
    own = {s.id for s in samples}
    return {name: s.id for k, s in enumerate(samples) for form in forms if (name := form.format(k=k)) not in own}


def jsonl_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:row", object) of a JSON-lines file."""
    name = str(path)
    return ((f"{name}:{number}", row) for number, row in read_jsonl(path))


def json_document(path: Path) -> Any:
    """A whole JSON file.

    Raises:
        DataError: missing or not JSON.
    """
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg}, column {error.colno})") from error


def json_items(path: Path) -> Iterator[tuple[str, Any]]:
    """("file:item k", item) of a JSON list; k counts from 1."""
    items = json_document(path)
    if not isinstance(items, list):
        raise DataError(f"{path}: expected a JSON list, got {type(items).__name__}")
    return ((f"{path}:item {k}", item) for k, item in enumerate(items, 1))


def first_of(row: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """The value of the first key that is there and not null."""
    for key in keys:
        if row.get(key) is not None:
            return row[key]
    return None


def windows_of(windows: Any, where: str) -> tuple[Window, ...]:
    """True windows as published, at least one; zero length is kept.

    Raises:
        DataError: none, not pairs of finite numbers, or reversed.
    """
    if not isinstance(windows, (list, tuple)) or not windows:
        raise DataError(f"{where}: no true window")
    found: list[Window] = []
    for window in windows:
        if not isinstance(window, (list, tuple)) or len(window) != 2:
            raise DataError(f"{where}: a true window is [start, end], not {window!r}")
        start, end = _required_seconds(window[0], where), _required_seconds(window[1], where)
        if start > end:
            raise DataError(f"{where}: true window [{start}, {end}] is reversed")
        found.append((start, end))
    return tuple(found)


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {key} is missing or empty")
    return value


def _required_seconds(value: Any, where: str) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DataError(f"{where}: {value!r} is not a number of seconds")
    return float(value)


def _seconds(value: Any, where: str) -> float | None:
    return None if value is None else _required_seconds(value, where)


def _length(value: Any, where: str) -> float | None:
    seconds = _seconds(value, where)
    if seconds is not None and seconds <= 0:
        raise DataError(f"{where}: duration {seconds} is not positive")
    return seconds
