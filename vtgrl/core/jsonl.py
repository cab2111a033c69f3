"""JSON lines and atomic files: a reader sees the old file or the whole new one, never a half."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError, RunError

_RAW_DECODE = json.JSONDecoder().raw_decode


def read_jsonl(path: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, object) of every non-empty line.

    Raises:
        DataError: no such file, or a line that is not a JSON object, with file and row.
    """
    try:
        with open(path, encoding="utf-8") as file:
            for row, line in enumerate(file, 1):
                if not line.isspace():
                    yield row, _parse(line, path, row)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); is this a JSONL file?") from error


def _parse(line: str, path: Path | str, row: int) -> dict[str, Any]:
    try:
        value, end = _RAW_DECODE(line) if line[0] == "{" else (None, 0)
        if line[end:] not in ("\n", ""):  # rare: only then the full decoder, which skips white space, is worth its time
            value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{row}: not JSON ({error.msg}, column {error.colno})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}:{row}: expected a JSON object, got {type(value).__name__}")
    return value


def to_line(row: Mapping[str, Any]) -> str:
    """One JSON line. NaN and infinity become null: the file stays JSON for every reader."""
    return json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def atomic_write(path: Path | str, content: str | bytes) -> None:
    """Write `path` through a temporary file beside it, fsync and rename. Parent folders are made.

    Raises:
        RunError: disk full or not writable; the old file is untouched and no temporary file stays.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    tmp: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, tmp = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
    except OSError as error:
        if tmp is not None:
            Path(tmp).unlink(missing_ok=True)
        raise cannot_write(path, error) from error


def append_line(path: Path, line: str) -> None:
    """Append one line, whole or not at all.

    Raises:
        RunError: disk full or not writable; what had been written of the line is taken back.
    """
    try:
        with open(path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                _write_all(file.fileno(), line.encode())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise
    except OSError as error:
        raise cannot_write(path, error) from error


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def cannot_write(path: Path, error: OSError) -> RunError:
    """The one line for a failed write."""
    return RunError(f"cannot write {path}: {error.strerror}; free space or choose another folder")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
