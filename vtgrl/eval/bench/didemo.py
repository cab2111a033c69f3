"""DiDeMo (Hendricks et al. 2017) and files in its form: several annotators name segments of five seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.registry import opt, register
from vtgrl.eval.benchmark import BenchConfig, Gather, json_items, jsonl_rows
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class DidemoConfig(BenchConfig):
    """Every annotator's segments are one true window. The original averages the three best overlaps; vtgrl takes the best."""

    segment_seconds: float = opt(5.0, "length of a segment")


@register("benchmark", "didemo", config=DidemoConfig, paper="arXiv:1708.01641")
def didemo(path: Path, *, config: DidemoConfig) -> GroundTruth:
    """Rows with `annotation_id`, `video`, `description`, `times` ([first, last] segment of each annotator), `num_segments`."""
    gather = Gather(path)
    for where, row in jsonl_rows(path) if path.suffix == ".jsonl" else json_items(path):
        if not isinstance(row, Mapping):
            gather.reject(where, "a row is a JSON object")
            continue
        gather.add(
            where,
            id=row.get("annotation_id"),
            video=row.get("video"),
            query=row.get("description"),
            windows=_windows(row.get("times"), config.segment_seconds),
            duration=_duration(row.get("num_segments"), config.segment_seconds),
        )
    return gather.truth()


def _windows(times: Any, seconds: float) -> list[list[float]]:
    pairs = times if isinstance(times, list) else []
    good = [p for p in pairs if isinstance(p, list) and len(p) == 2 and all(isinstance(v, int) for v in p)]
    return [[first * seconds, (last + 1) * seconds] for first, last in good] if len(good) == len(pairs) else []


def _duration(segments: Any, seconds: float) -> float | None:
    return segments * seconds if isinstance(segments, int) else None
