"""Reading a predictions file and matching it to the queries: unique ids, duplicates, strangers and gaps are counted.

Rows: {"qid"|"id", "output_text"} or ranked windows {"qid"|"id", "pred_relevant_windows": [[s, e, score], ...],
"pred_saliency_scores"}. Our own predictions.jsonl has the first form.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.types import Sample
from vtgrl.eval.ranked import Ranked
from vtgrl.eval.score import Output
from vtgrl.eval.types import GroundTruth

_EXTENSIONS = frozenset(("mp4", "mkv", "webm", "avi", "mov"))
NO_ROW = "the predictions file has no row for it"


@dataclass(frozen=True)
class Predictions:
    """Predictions by row id of the benchmark.

    texts and ranked: only one of them is filled. duplicate: rows beyond the first of an id (the last row of an id counts).
    unknown: ids that are no query of the benchmark. by_content: rows matched by video and query because no id of the
    file is one of the benchmark's.
    """

    texts: Mapping[str, Output] = field(default_factory=dict)
    ranked: Mapping[str, Ranked] = field(default_factory=dict)
    duplicate: int = 0
    unknown: tuple[str, ...] = ()
    by_content: int = 0

    @property
    def is_ranked(self) -> bool:
        """Whether the file holds ranked windows."""
        return bool(self.ranked)


def load_predictions(path: Path, truth: GroundTruth) -> Predictions:
    """Read and match a predictions file.

    Raises:
        DataError: not JSONL, a row without id or prediction, a window that is not a list of numbers; file and row named.
    """
    file = str(path)
    rows = [(f"{file}:{number}", row) for number, row in read_jsonl(path)]
    if not rows:
        raise DataError(f"{path}: no rows; expected one JSON object a line")
    ranked = [_is_ranked(row, where) for where, row in rows]
    if any(ranked) and not all(ranked):
        where = rows[ranked.index(not ranked[0])][0]
        raise DataError(f"{where}: a file holds either output_text or pred_relevant_windows, not both kinds of rows")
    ids, by_content = _match(rows, truth)
    unknown = tuple(_id(row, where) for name, (where, row) in zip(ids, rows, strict=True) if name is None)
    read: Callable[..., Any] = _ranked if ranked[0] else _output
    found = {name: read(row, where) for name, (where, row) in zip(ids, rows, strict=True) if name is not None}
    duplicate = len(rows) - len(unknown) - len(found)
    kind = {"ranked": found} if ranked[0] else {"texts": found}
    return Predictions(**kind, duplicate=duplicate, unknown=unknown, by_content=by_content)


def outputs_for(samples: Sequence[Sample], predictions: Predictions) -> list[Output]:
    """One output a sample; without text where the file has no row."""
    nothing = Output(None, error=NO_ROW)
    return [predictions.texts.get(s.id, nothing) for s in samples]


def _id(row: Mapping[str, Any], where: str) -> str:
    for key in ("qid", "id"):
        if row.get(key) is not None:
            return str(row[key])
    raise DataError(f'{where}: no "qid" or "id"')


def _is_ranked(row: Mapping[str, Any], where: str) -> bool:
    if "output_text" in row:
        return False
    if "pred_relevant_windows" in row:
        return True
    raise DataError(f'{where}: neither "output_text" nor "pred_relevant_windows"')


def _match(rows: Sequence[tuple[str, Mapping[str, Any]]], truth: GroundTruth) -> tuple[list[str | None], int]:
    """Row id of each prediction (None: unknown), and how many were matched by content."""
    own = {s.id for s in truth.rows}
    waiting = {name: list(copies) for name, copies in truth.copies.items()}
    ids: list[str | None] = []
    for where, row in rows:
        name = _id(row, where)
        if len(waiting.get(name, ())) > 1:
            ids.append(waiting[name].pop(0))
        elif name in waiting:
            ids.append(waiting[name][0])
        else:
            ids.append(name if name in own else truth.aliases.get(name))
    if any(name is not None for name in ids):
        return ids, 0
    found = _match_content(rows, truth)
    return found, sum(name is not None for name in found)


def _match_content(rows: Sequence[tuple[str, Mapping[str, Any]]], truth: GroundTruth) -> list[str | None]:
    """By (video, query); the k-th row of a pair goes to the k-th query of that pair. One id keeps its query."""
    waiting: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for sample in truth.rows:
        waiting[content_key(sample.video.path if sample.video else "", sample.query)].append(sample.id)
    chosen: dict[str, str | None] = {}
    for where, row in rows:
        name = _id(row, where)
        if name not in chosen:
            queue = waiting[content_key(str(row.get("vid") or row.get("video") or ""), str(row.get("query") or ""))]
            chosen[name] = queue.pop(0) if queue else None
    return [chosen[_id(row, where)] for where, row in rows]


def content_key(video: str, query: str) -> tuple[str, str]:
    """Video name without folder and extension, query without extra white space."""
    name = video.rsplit("/", 1)[-1]
    stem, dot, extension = name.rpartition(".")
    return stem if dot and extension.lower() in _EXTENSIONS else name, " ".join(query.split())


def _output(row: Mapping[str, Any], where: str) -> Output:
    text = row["output_text"]
    if text is not None and not isinstance(text, str):
        raise DataError(f"{where}: output_text is a text or null, not {type(text).__name__}")
    duration = row.get("duration")
    return Output(text, str(row.get("finish") or "stop"), row.get("error"), float(duration) if duration else None)


def _ranked(row: Mapping[str, Any], where: str) -> Ranked:
    windows = row["pred_relevant_windows"]
    if not isinstance(windows, list):
        raise DataError(f"{where}: pred_relevant_windows is a list of [start, end, score], not {type(windows).__name__}")
    saliency = row.get("pred_saliency_scores")
    scores = None if saliency is None else tuple(_number(v, where) for v in saliency)
    if scores is not None and not all(map(math.isfinite, scores)):
        raise DataError(f"{where}: pred_saliency_scores holds NaN or infinity; a ranking needs numbers")
    return Ranked(tuple(_window(w, where) for w in windows), scores)


def _window(window: Any, where: str) -> tuple[float, float, float | None]:
    if not isinstance(window, list) or len(window) not in (2, 3):
        raise DataError(f"{where}: a predicted window is [start, end, score], not {window!r}")
    start, end, *score = (_number(v, where) for v in window)
    return start, end, score[0] if score else None


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{where}: {value!r} is not a number")
    return float(value)
