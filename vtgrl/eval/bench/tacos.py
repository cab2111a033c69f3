"""TACoS (Regneri et al. 2013): 25 long cooking videos, 4,001 test queries; in seconds (lighthouse) or in frames (2D-TAN)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, json_document, jsonl_rows
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class TacosConfig(BenchConfig):
    """Frame numbers are divided by the video's fps."""


@register("benchmark", "tacos", config=TacosConfig)
def tacos(path: Path, *, config: TacosConfig) -> GroundTruth:
    """tacos_test_release.jsonl (seconds) or test.json with `timestamps` in frames, `fps` and `num_frames`."""
    gather = Gather(path)
    if path.suffix == ".jsonl":
        for where, row in jsonl_rows(path):
            gather.add(
                where, id=row.get("qid"), video=f"{row.get('vid')}.avi", query=row.get("query"), windows=row.get("relevant_windows"),
                duration=row.get("duration"),
            )  # fmt: skip
        return gather.truth()
    videos = json_document(path)
    if not isinstance(videos, Mapping):
        raise DataError(f"{path}: expected a JSON object of videos, got {type(videos).__name__}")
    for name, video in videos.items():
        _add_video(gather, f"{path}:{name}", name, video)
    return gather.truth()


def _add_video(gather: Gather, where: str, name: str, video: Any) -> None:
    try:
        fps, frames = float(video["fps"]), float(video["num_frames"])
        pairs = list(zip(video["timestamps"], video["sentences"], strict=True))
    except (KeyError, TypeError, ValueError):
        gather.reject(where, "needs fps, num_frames and as many timestamps as sentences")
        return
    for k, (frame_pair, sentence) in enumerate(pairs):
        window = [f / fps for f in frame_pair]
        gather.add(
            f"{where}:{k}", id=f"{name.removesuffix('.avi')}_{k}", video=name, query=sentence, windows=[window], duration=frames / fps
        )
