"""NExT-GQA (Xiao et al. 2024): grounding of the answer to a question; several windows for some questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, json_items
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class NextgqaConfig(BenchConfig):
    """The question is the query; options stay in `meta`."""


@register("benchmark", "nextgqa", config=NextgqaConfig, paper="arXiv:2309.01327")
def nextgqa(path: Path, *, config: NextgqaConfig) -> GroundTruth:
    """A JSON list of questions with `glue`, the windows that support the answer."""
    gather = Gather(path)
    for where, row in json_items(path):
        if not isinstance(row, Mapping):
            gather.reject(where, "a row is a JSON object")
            continue
        kept: dict[str, Any] = {k: row[k] for k in ("options", "answer", "type") if k in row}
        gather.add(
            where,
            id=row.get("id"),
            video=row.get("video"),
            query=row.get("question"),
            windows=row.get("glue"),
            duration=row.get("duration"),
            **kept,
        )
    return gather.truth()
