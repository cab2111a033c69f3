"""Any JSON-lines file of queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, first_of, jsonl_rows
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class JsonlConfig(BenchConfig):
    """Rows {"qid"|"id", "query", "duration", "relevant_windows"} (also "vid"|"video"|"video_file"), or canonical samples."""


@register("benchmark", "jsonl", config=JsonlConfig)
def jsonl(path: Path, *, config: JsonlConfig) -> GroundTruth:
    """Rows with `qid` or `id`, `query`, `duration` and `relevant_windows` or `windows`."""
    gather = Gather(path)
    for where, row in jsonl_rows(path):
        video = row.get("video")
        ref: dict[str, Any] = video if isinstance(video, dict) else {"path": first_of(row, ("video_file", "video", "vid"))}
        name = first_of(row, ("qid", "id"))
        if name is None:
            gather.reject(where, 'no "qid" or "id"')
            continue
        gather.add(
            where,
            id=name,
            video=ref.get("path") or str(name),
            query=row.get("query"),
            windows=first_of(row, ("relevant_windows", "windows")),
            duration=first_of({**row, **ref}, ("duration",)),
            start=first_of({**row, **ref}, ("video_start", "start")),
            end=first_of({**row, **ref}, ("video_end", "end")),
            maybe_cut=bool(ref.get("maybe_cut", False)),
            **{k: row[k] for k in ("relevant_clip_ids", "saliency_scores") if k in row},
        )
    return gather.truth()
