"""ActivityNet Captions: one JSON object, {video: {"duration", "timestamps": [[s, e], ...], "sentences": [...]}}."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.samples import LoadReport, flag_zero_length, list_of, seconds, window_of
from vtgrl.data.sources.common import collect, mapping, read_text


@dataclass(frozen=True)
class ActivitynetConfig:
    """ActivityNet Captions json."""

    split: str = opt("train", "split that the samples are given")
    present: bool = opt(False, "leave rows out (named, counted) whose video is not in the folder: some have left the web")


@register("source", "activitynet", config=ActivitynetConfig, paper="arXiv:1705.00754")
def activitynet(path: Path, *, videos: Path, config: ActivitynetConfig) -> LoadReport:
    """ActivityNet Captions json (train.json, val_1.json, val_2.json): every sentence is a query about VIDEO.mp4.

    The id of a sample is the video's name and the sentence's number. A sentence without its own window is rejected.
    """
    return collect(_rows(path), lambda row, where: _sample(row, where, videos, config), path=path, videos=videos)


def _rows(path: Path) -> Iterator[tuple[str, tuple[str, Any, int]]]:
    """One item a sentence; of a video without a list of sentences, one that will be rejected."""
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not JSON ({error.msg}, column {error.colno})") from error
    if not isinstance(document, Mapping):
        raise DataError(f"{path}: expected a JSON object of videos, got {type(document).__name__}; Time-R1's lists are source=time_r1")
    for name, video in document.items():
        sentences = video.get("sentences") if isinstance(video, Mapping) else None
        for k in range(len(sentences) if isinstance(sentences, list) and sentences else 1):
            yield f"{path}:{name}:{k}", (name, video, k)


def _sample(row: tuple[str, Any, int], where: str, videos: Path, config: ActivitynetConfig) -> Sample:
    name, video, k = row
    video = mapping(video, where)
    sentences, windows = (list_of(video, key, where=where) for key in ("sentences", "timestamps"))
    if k >= len(sentences) or len(sentences) != len(windows):
        raise DataError(f"{where}: {len(windows)} timestamps for {len(sentences)} sentences")
    if not isinstance(sentences[k], str) or not sentences[k].strip():
        raise DataError(f"{where}: sentence {sentences[k]!r} is not a text")
    if config.present and not (videos / f"{name}.mp4").is_file():
        raise DataError(f"{where}: no {name}.mp4 in {videos}")
    sample = Sample(
        id=f"{name}_{k}",
        task="vtg",
        query=sentences[k].strip(),
        video=VideoRef(f"{name}.mp4", duration=seconds(video.get("duration"), where=f"{where}: duration")),
        windows=(window_of(windows[k], where=where),),
        split=config.split,
        source="activitynet",
        meta={"vid": name},
    )
    return flag_zero_length(sample)
