"""Ego4D natural language queries (Grauman et al. 2022), validation: questions about egocentric clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.registry import register
from vtgrl.eval.benchmark import BenchConfig, Gather, json_document
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class Ego4dNlqConfig(BenchConfig):
    """Windows are relative to the clip; files are named by the clip's id. Some published windows have no length."""


@register("benchmark", "ego4d_nlq", config=Ego4dNlqConfig, paper="arXiv:2110.07058")
def ego4d_nlq(path: Path, *, config: Ego4dNlqConfig) -> GroundTruth:
    """nlq_val.json: videos -> clips -> annotations -> language_queries; an id is ANNOTATION_UID_k as in the challenge."""
    document = json_document(path)
    if not isinstance(document, Mapping) or not isinstance(document.get("videos"), list):
        raise DataError(f'{path}: expected {{"videos": [...]}} of Ego4D; is this nlq_val.json?')
    gather = Gather(path)
    for video in document["videos"]:
        for clip in video.get("clips", ()):
            _add_clip(gather, f"{path}:{clip.get('clip_uid')}", clip)
    return gather.truth()


def _add_clip(gather: Gather, where: str, clip: Mapping[str, Any]) -> None:
    start, end = clip.get("video_start_sec"), clip.get("video_end_sec")
    duration = end - start if isinstance(start, (int, float)) and isinstance(end, (int, float)) else None
    for annotation in clip.get("annotations", ()):
        for k, query in enumerate(annotation.get("language_queries", ())):
            window = [query.get("clip_start_sec"), query.get("clip_end_sec")]
            name = f"{annotation.get('annotation_uid')}_{k}"
            gather.add(
                f"{where}:{name}",
                id=name,
                video=f"{clip.get('clip_uid')}.mp4",
                query=query.get("query"),
                windows=[window],
                duration=duration,
            )
