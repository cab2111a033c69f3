"""Any JSON-lines file of queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, first_of, jsonl_rows
from vtgrl.eval.types import GroundTruth

_KEPT = ("relevant_clip_ids", "saliency_scores", "type")


@dataclass(frozen=True)
class JsonlConfig(BenchConfig):
    """Rows {"qid"|"id", "query", "duration", "relevant_windows"} (also "vid"|"video"|"video_file"), or canonical samples."""


@register("benchmark", "jsonl", config=JsonlConfig)
def jsonl(path: Path, *, config: JsonlConfig) -> GroundTruth:
    """Rows with `qid` or `id`, `query`, `duration` and `relevant_windows` or `windows`."""
    gather = Gather(path)
    for where, row in jsonl_rows(path):
        name = first_of(row, ("qid", "id"))
        if name is None:
            gather.reject(where, 'no "qid" or "id"')
            continue
        gather.add(
            where,
            id=name,
            query=row.get("query"),
            windows=first_of(row, ("relevant_windows", "windows")),
            **_clip(row, str(name)),
            **{k: row[k] for k in _KEPT if k in row},
        )
    return gather.truth()


def _clip(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Video, length and cut; a canonical sample holds them in an object."""
    video = row.get("video")
    if isinstance(video, dict):
        return {
            "video": video.get("path") or name,
            "duration": video.get("duration"),
            "start": video.get("start"),
            "end": video.get("end"),
            "maybe_cut": bool(video.get("maybe_cut")),
        }
    path = row.get("video_file") or video or row.get("vid") or name
    return {"video": path, "duration": row.get("duration"), "start": row.get("video_start"), "end": row.get("video_end")}
