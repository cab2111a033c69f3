"""Time-R1's files: the training list (train_2k5.json) and TVGBench (tvgbench.json)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample, Window
from vtgrl.data.samples import LoadReport, flag_zero_length, text_of, window_of
from vtgrl.data.sources.common import below, collect, extra, json_list, mapping, published_cut

_NUMBER = r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_SPAN = re.compile(rf"\s*{_NUMBER}\s*-\s*{_NUMBER}\s*")
TRAIN_META = ("difficulty", "pred")
BENCH_META = ("question_type", "dataset_name", "source", "qsemtype")


@dataclass(frozen=True)
class TimeR1Config:
    """Time-R1 json."""

    strip: str = opt("./dataset/timer1/videos", "leading folders of the published paths that your `videos` folder stands for")


@register("source", "time_r1", config=TimeR1Config, paper="arXiv:2503.13377")
def time_r1(path: Path, *, videos: Path, config: TimeR1Config) -> LoadReport:
    """Time-R1 json: the training list, or TVGBench (told apart by their keys, row by row).

    `difficulty` of the training list is 100 x IoU of a base model's answer: high is easy. Both name cuts of longer
    videos without saying whether the file is already cut: decided when it is opened.
    """
    numbered = ((where, (k, row)) for k, (where, row) in enumerate(json_list(path)))
    return collect(numbered, lambda item, where: _row(item, where, config), path=path, videos=videos)


def _row(item: tuple[int, Any], where: str, config: TimeR1Config) -> Sample:
    index, raw = item
    row = mapping(raw, where)
    sample = _bench(row, index, where, config) if "answer" in row else _train(row, where, config)
    return flag_zero_length(sample)


def _train(row: Mapping[str, Any], where: str, config: TimeR1Config) -> Sample:
    path = below(text_of(row, "video", where=where), config.strip)
    return Sample(
        id=text_of(row, "qid", where=where),
        task="vtg",
        query=text_of(row, "sentence", where=where),
        video=published_cut(row, path, start="video_start", end="video_end", where=where),
        windows=(window_of(row.get("timestamp"), where=f"{where}: timestamp"),),
        split="train",
        source="time_r1",
        meta=extra(row, TRAIN_META),
    )


def _bench(row: Mapping[str, Any], index: int, where: str, config: TimeR1Config) -> Sample:
    """TVGBench has no ids: the place in the file is one, whatever videos are missing."""
    path = below(text_of(row, "path", where=where), config.strip)
    return Sample(
        id=f"tvgbench-{index}",
        task="vtg",
        query=text_of(row, "question", where=where),
        video=published_cut(row, path, start="start", end="end", where=where),
        windows=(parse_answer(text_of(row, "answer", where=where), where=f"{where}: answer"),),
        split="test",
        source="tvgbench",
        meta=extra(row, BENCH_META),
    )


def parse_answer(text: str, *, where: str) -> Window:
    """ "13.4-28.1" -> (13.4, 28.1). Exponents are numbers too: "1e-05-3.2" -> (0.00001, 3.2)."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise DataError(f'{where}: {text!r} is not "start-end" in seconds')
    return window_of([float(found[1]), float(found[2])], where=where)
