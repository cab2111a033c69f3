"""predictions.jsonl: appended as answers come, resumed by id and key, rewritten in order at the end.

A row: {"id", "key", "output_text", "finish", "tokens", "error"}; after scoring also pred, iou, kind, flags. `key` is a
digest of what made the answer (prompt, model, frames, decoding): a row made otherwise is set aside, never mixed in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import append_line, atomic_write, cannot_write, to_line
from vtgrl.core.log import logger

PREDICTIONS = "predictions.jsonl"
FOREIGN = "predictions.foreign.jsonl"


def digest(value: Any) -> str:
    """16 hex digits of any JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


class PredictionStore:
    """The answers of one run. `done` maps id -> row that need not be made again (rows with an error are made again)."""

    def __init__(self, folder: Path | None, *, key: str) -> None:
        self.key = key
        self.path = None if folder is None else folder / PREDICTIONS
        self.done: dict[str, dict[str, Any]] = {}
        if self.path is not None:
            _make_folder(self.path.parent)
            self._load(self.path)

    def _load(self, path: Path) -> None:
        rows, torn = read_rows(path)
        mine = [row for row in rows if row.get("key") == self.key]
        foreign = [row for row in rows if row.get("key") != self.key]
        if torn:
            logger.warning("%s: the last line was cut off; that answer is made again", path)
        if foreign:
            aside = path.with_name(FOREIGN)
            logger.warning("%s: %d rows come from another model, prompt or setting; moved to %s", path, len(foreign), aside.name)
            atomic_write(aside, (aside.read_text() if aside.exists() else "") + "".join(map(to_line, foreign)))
        if torn or foreign:
            atomic_write(path, "".join(map(to_line, mine)))
        self.done = {str(row["id"]): row for row in mine if row.get("error") is None}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows; each gets the store's key."""
        for row in rows:
            if self.path is not None:
                append_line(self.path, to_line({**row, "key": self.key}))

    def finish(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file by one scored row a query, in the order of the benchmark."""
        if self.path is not None:
            atomic_write(self.path, "".join(to_line({**row, "key": self.key}) for row in rows))


def read_rows(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """-> (rows, whether the last line was torn and left out). No file: no rows.

    Raises:
        DataError: a line before the last is not a JSON object with an id.
    """
    if not path.exists():
        return [], False
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
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
