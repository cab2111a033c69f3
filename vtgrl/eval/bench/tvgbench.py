"""TVGBench (Time-R1): 800 queries from five sets; 252 of them are about a cut of a longer video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, json_items, jsonl_rows, numbered_aliases
from vtgrl.eval.types import GroundTruth

ROWS = 800


@dataclass(frozen=True)
class TvgbenchConfig(BenchConfig):
    """Windows are relative to the cut. The published clips are already cut: a file is cut again only when it is longer than
    the stated duration (`maybe_cut`)."""


@register("benchmark", "tvgbench", config=TvgbenchConfig, paper="arXiv:2503.13377")
def tvgbench(path: Path, *, config: TvgbenchConfig) -> GroundTruth:
    """tvgbench.json of Time-R1, or TaRO's JSONL copy."""
    gather = Gather(path)
    if path.suffix == ".jsonl":
        for where, row in jsonl_rows(path):
            _add(gather, where, row, name=row.get("qid"), video=row.get("video_file"), cut=("video_start", "video_end"))
    else:
        for k, (where, row) in enumerate(json_items(path)):
            if not isinstance(row, Mapping):
                gather.reject(where, "a row is a JSON object")
                continue
            video = str(row.get("path") or row.get("video") or "").rsplit("/", 1)[-1]
            _add(gather, where, row, name=row.get("qid") or f"tvgbench_{k}", video=video, cut=("start", "end"))
    aliases = numbered_aliases(gather.rows, "tvgbench_{k}", "test{k}") if len(gather.rows) == ROWS else {}
    return gather.truth(aliases=aliases)


def _add(gather: Gather, where: str, row: Mapping[str, Any], *, name: Any, video: Any, cut: tuple[str, str]) -> None:
    start, end = row.get(cut[0]), row.get(cut[1])
    gather.add(
        where,
        id=name,
        video=video,
        query=row.get("query") or row.get("question"),
        windows=row.get("relevant_windows") or _answer(row.get("answer")),
        duration=row.get("duration"),
        start=start,
        end=end,
        maybe_cut=start is not None or end is not None,
        type=row.get("qsemtype") or "",
    )


def _answer(answer: Any) -> list[list[float]]:
    """ "13.4-28.1" -> [[13.4, 28.1]]; nothing when it is written otherwise."""
    try:
        start, end = str(answer).split("-")
        return [[float(start), float(end)]]
    except ValueError:
        return []
