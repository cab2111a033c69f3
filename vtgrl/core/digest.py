"""Short names for things that have to be told apart: settings, and the weights of a model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def digest(value: Any) -> str:
    """16 hex digits of any JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def weights_mark(model: str) -> list[Any]:
    """Names, sizes and times of a model folder's files; a hub name stands for itself."""
    folder = Path(model)
    if not folder.is_dir():
        return [model]
    return sorted([p.name, p.stat().st_size, p.stat().st_mtime_ns] for p in folder.iterdir() if p.is_file())
