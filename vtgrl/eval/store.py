"""predictions.jsonl: appended as answers come, resumed by id and key, rewritten in order at the end.

A row: {"id", "run", "key", "output_text", "finish", "tokens", "error"}; after scoring also pred, iou, kind, flags. `run` is
a digest of what made the answer (prompt, model, frames, decoding), `key` of the query: other rows are never mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import append_line, atomic_write, cannot_write, to_line
from vtgrl.core.log import logger

PREDICTIONS = "predictions.jsonl"
FOREIGN = "predictions.foreign.jsonl"


class PredictionStore:
    """The answers of one run.

    done: id -> row that need not be made again (a row with an error is made again). Rows of this run for queries that are
    not asked now (another --limit) stay in the file; rows of another run are moved aside.
    """

    def __init__(self, folder: Path | None, *, run: str, keys: Mapping[str, str]) -> None:
        """run: digest of model, prompt, frames and decoding. keys: id -> digest of the query and its clip."""
        self.run, self.keys = run, keys
        self.path = None if folder is None else folder / PREDICTIONS
        self.done: dict[str, dict[str, Any]] = {}
        self._others: list[dict[str, Any]] = []
        if self.path is not None:
            _make_folder(self.path.parent)
            self._load(self.path)

    def _load(self, path: Path) -> None:
        rows, torn = read_rows(path)
        mine = [row for row in rows if self._is_mine(row)]
        foreign = [row for row in rows if not self._is_mine(row)]
        if torn:
            logger.warning("%s: the last line was cut off; that answer is made again", path)
        if foreign:
            aside = path.with_name(FOREIGN)
            logger.warning("%s: %d rows come from another model, prompt or setting; moved to %s", path, len(foreign), aside.name)
            atomic_write(aside, (aside.read_text(encoding="utf-8") if aside.exists() else "") + "".join(map(to_line, foreign)))
        if torn or foreign:
            atomic_write(path, "".join(map(to_line, mine)))
        self.done = {str(row["id"]): row for row in mine if row["id"] in self.keys and row.get("error") is None}
        self._others = [row for row in mine if row["id"] not in self.keys]

    def _is_mine(self, row: Mapping[str, Any]) -> bool:
        return row.get("run") == self.run and self.keys.get(row["id"], row.get("key")) == row.get("key")

    def _stamp(self, row: Mapping[str, Any]) -> str:
        return to_line({**row, "run": self.run, "key": self.keys[row["id"]]})

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows."""
        for row in rows:
            if self.path is not None:
                append_line(self.path, self._stamp(row))

    def finish(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file by one scored row a query, in the order of the benchmark."""
        if self.path is not None:
            atomic_write(self.path, "".join([*map(self._stamp, rows), *map(to_line, self._others)]))


def read_rows(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """-> (rows, whether the last line was torn and left out). No file: no rows.

    Raises:
        DataError: a line before the last is not a JSON object with an id.
    """
    if not path.exists():
        return [], False
    lines = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")  # an answer may hold other line ends
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _row(line)
        if row is None and number == len(lines):
            return rows, True
        if row is None:
            raise DataError(f"{path}:{number}: not a prediction row; repair or remove the line, or choose another --out")
        rows.append(row)
    return rows, False


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and "id" in row else None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """A result document.

    Raises:
        DataError: no such file, or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def load_scored(path: Path) -> list[dict[str, Any]]:
    """Scored rows of a finished run; an IoU that the file writes as null is NaN again.

    Raises:
        DataError: no such file, or a row that has not been scored.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; is this the --out folder of a finished evaluation?")
    rows, _ = read_rows(path)
    bare = next((row["id"] for row in rows if "iou" not in row), None)
    if bare is not None:
        raise DataError(f"{path}: row {bare!r} has no score; the run has not finished")
    return [row if row["iou"] is not None else {**row, "iou": float("nan")} for row in rows]
