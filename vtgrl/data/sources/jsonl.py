"""vtgrl's own rows: one canonical `Sample` a line (see vtgrl/data/samples.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.registry import opt, register
from vtgrl.data.samples import LoadReport, sample_from_dict
from vtgrl.data.sources.common import collect


@dataclass(frozen=True)
class JsonlConfig:
    """Canonical JSONL."""

    split: str = opt("", "only rows of this split; empty: all")


@register("source", "jsonl", config=JsonlConfig)
def jsonl(path: Path, *, videos: Path, config: JsonlConfig) -> LoadReport:
    """Canonical JSONL: one sample a line.

    Args:
        path: the JSONL file.
        videos: folder that relative video paths start from.
    """
    rows = ((f"{path}:{number}", row) for number, row in read_jsonl(path))
    return collect(
        rows,
        lambda row, where: sample_from_dict(row, where=where),
        path=path,
        videos=videos,
        wanted=lambda sample: config.split in ("", sample.split),
    )
