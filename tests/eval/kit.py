"""Small makers that the evaluation tests share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.types import Sample, VideoRef


def sample(name: str, windows: Sequence[Sequence[float]], *, duration: float | None = 30.0, video: str = "", query: str = "q") -> Sample:
    """A grounding query; its video is named after it unless given."""
    pairs = tuple((float(a), float(b)) for a, b in windows)
    return Sample(name, "vtg", query, VideoRef(video or f"{name}.mp4", duration=duration), pairs)


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
