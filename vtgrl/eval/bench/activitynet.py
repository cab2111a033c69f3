"""ActivityNet Captions (Krishna et al. 2017): two query sets on nearly the same videos, told apart by their queries.

val_1 has 17,505 queries (TaRO, lighthouse), val_2 17,031 (Time-R1, VideoChat-R1, VideoMind; called "test" by 2D-TAN).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.registry import register
from vtgrl.core.types import Sample
from vtgrl.eval.bench.activitynet_marks import MARKS, mark
from vtgrl.eval.benchmark import BenchConfig, Gather, json_document, jsonl_rows
from vtgrl.eval.types import GroundTruth


@dataclass(frozen=True)
class ActivitynetConfig(BenchConfig):
    """Float noise aside, only a handful of windows end after the video."""


@register("benchmark", "activitynet_val1", config=ActivitynetConfig, paper="arXiv:1705.00754")
def activitynet_val1(path: Path, *, config: ActivitynetConfig) -> GroundTruth:
    """val_1: val_1.json (2D-TAN's val.json) or TaRO's JSONL without the 442 unavailable videos."""
    return _load(path, "val_1")


@register("benchmark", "activitynet_val2", config=ActivitynetConfig, paper="arXiv:1705.00754")
def activitynet_val2(path: Path, *, config: ActivitynetConfig) -> GroundTruth:
    """val_2: val_2.json (2D-TAN's test.json), the set that most VLM papers report."""
    return _load(path, "val_2")


def _load(path: Path, wanted: str) -> GroundTruth:
    gather = Gather(path)
    if path.suffix == ".jsonl":
        for where, row in jsonl_rows(path):
            video = row.get("video_file") or f"{row.get('vid')}.mp4"
            gather.add(
                where,
                id=row.get("qid"),
                video=video,
                query=row.get("query"),
                windows=row.get("relevant_windows"),
                duration=row.get("duration"),
            )
    else:
        videos = json_document(path)
        if not isinstance(videos, Mapping):
            raise DataError(f"{path}: expected a JSON object of videos, got {type(videos).__name__}")
        for name, video in videos.items():
            _add_video(gather, f"{path}:{name}", name, video)
    truth = gather.truth()
    notes = _check_split(path, truth.rows, wanted)
    return GroundTruth(truth.rows, truth.aliases, truth.rejected, (*truth.notes, *notes), truth.copies)


def _add_video(gather: Gather, where: str, name: str, video: Any) -> None:
    try:
        pairs = list(zip(video["timestamps"], video["sentences"], strict=True))
        duration = video["duration"]
    except (KeyError, TypeError, ValueError):
        gather.reject(where, "needs duration and as many timestamps as sentences")
        return
    for k, (window, sentence) in enumerate(pairs):
        gather.add(f"{where}:{k}", id=f"{name}_{k}", video=f"{name}.mp4", query=sentence, windows=[window], duration=duration)


def split_votes(samples: Sequence[Sample]) -> dict[str, int]:
    """How many queries of a file are known ones of each split."""
    marks = {mark(s.video.path if s.video else "", s.query) for s in samples}
    return {split: len(marks & known) for split, known in MARKS.items()}


def _check_split(path: Path, samples: Sequence[Sample], wanted: str) -> tuple[str, ...]:
    """Refuse a file whose known queries are of the other split.

    Raises:
        DataError: most of the recognised queries belong to the other split.
    """
    votes = split_votes(samples)
    other = next(split for split in votes if split != wanted)
    if votes[other] > votes[wanted]:
        name = f"activitynet_{other.replace('_', '')}"
        raise DataError(
            f"{path}: holds {other} queries ({votes[other]} recognised, {votes[wanted]} of {wanted}); the two are different tests: "
            f"use --benchmark {name} or the {wanted} file"
        )
    if votes[wanted] == 0:
        return (f"no query of {path.name} is a known one: whether it is {wanted} could not be checked",)
    return ()
