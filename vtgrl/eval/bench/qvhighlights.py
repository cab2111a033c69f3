"""QVHighlights (Lei et al. 2021): moments and highlights of 150-second clips; 1,550 validation queries, up to 25 windows each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, jsonl_rows
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class QvhighlightsConfig(BenchConfig):
    """Best match among the true windows unless a protocol says otherwise."""

    length_ranges: ClassVar[bool] = True


@register("benchmark", "qvhighlights", config=QvhighlightsConfig, paper="arXiv:2107.09609")
def qvhighlights(path: Path, *, config: QvhighlightsConfig) -> GroundTruth:
    """highlight_{val,test}_release.jsonl of moment_detr; clips are files named VIDEO_START_END.mp4."""
    gather = Gather(path)
    for where, row in jsonl_rows(path):
        gather.add(
            where,
            id=row.get("qid"),
            video=row.get("video_file") or f"{row.get('vid')}.mp4",
            query=row.get("query"),
            windows=row.get("relevant_windows"),
            duration=row.get("duration"),
            **{k: row[k] for k in ("relevant_clip_ids", "saliency_scores") if k in row},
        )
    return gather.truth()
