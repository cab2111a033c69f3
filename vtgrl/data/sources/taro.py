"""TaRO's files: evaluation jsonl (also Lighthouse's and QVHighlights' layout) and training json with captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Caption, Sample
from vtgrl.data.caption_text import stated_range
from vtgrl.data.samples import LoadReport, flag_zero_length, list_of, optional_text, text_of, window_of
from vtgrl.data.sources.common import below, collect, extra, json_list, mapping, published_cut

META = ("vid", "relevant_clip_ids", "saliency_scores")


@dataclass(frozen=True)
class TaroConfig:
    """TaRO jsonl and json."""

    split: str = opt("test", "split that the rows of a jsonl are given (the training json states its own)")
    strip: str = opt("data/TimeR1-Dataset", "leading folders of the published paths that your `videos` folder stands for")


@register("source", "taro", config=TaroConfig, paper="arXiv:2606.09248")
def taro(path: Path, *, videos: Path, config: TaroConfig) -> LoadReport:
    """TaRO evaluation jsonl, or (a file that ends in .json) its training list.

    Cuts (video_start, video_end) do not say whether the file is already cut: decided when it is opened.
    """
    if path.suffix == ".json":
        return collect(json_list(path), lambda row, where: _train(mapping(row, where), where, config), path=path, videos=videos)
    rows = ((f"{path}:{number}", row) for number, row in read_jsonl(path))
    return collect(rows, lambda row, where: _eval(row, where, config), path=path, videos=videos)


def _eval(row: Mapping[str, Any], where: str, config: TaroConfig) -> Sample:
    windows = list_of(row, "relevant_windows", where=where)
    if not windows:
        raise DataError(f'{where}: "relevant_windows" is missing or empty')
    sample = Sample(
        id=_qid(row, where),
        task="vtg",
        query=text_of(row, "query", where=where),
        video=published_cut(row, _file(row, where, config), start="video_start", end="video_end", where=where),
        windows=tuple(window_of(w, where=f"{where}: relevant_windows[{i}]") for i, w in enumerate(windows)),
        split=config.split,
        source="taro",
        meta=extra(row, META),
    )
    return flag_zero_length(sample)


def _qid(row: Mapping[str, Any], where: str) -> str:
    """QVHighlights numbers its queries, TaRO names them."""
    qid = row.get("qid")
    return str(qid) if isinstance(qid, int) and not isinstance(qid, bool) else text_of(row, "qid", where=where)


def _file(row: Mapping[str, Any], where: str, config: TaroConfig) -> str:
    name = optional_text(row, "video_file", where=where)
    return below(name, config.strip) if name else f"{text_of(row, 'vid', where=where)}.mp4"


def _train(row: Mapping[str, Any], where: str, config: TaroConfig) -> Sample:
    info = mapping(row.get("extra_info"), f"{where}: extra_info")
    truth = mapping(row.get("reward_model"), f"{where}: reward_model").get("ground_truth")
    files = list_of(row, "videos", where=where)
    if len(files) != 1 or not isinstance(files[0], str):
        raise DataError(f'{where}: "videos" holds one path, not {files!r}')
    if row.get("query") is None:
        raise DataError(f'{where}: no "query" (it is only inside the prompt); read the jsonl of this set instead')
    split = optional_text(info, "split", where=where) or "train"
    timed = {**row, "duration": info.get("duration")}
    sample = Sample(
        id=f"{split}-{info.get('index', where)}",
        task="vtg",
        query=text_of(row, "query", where=where),
        video=published_cut(timed, below(files[0], config.strip), start="video_start", end="video_end", where=where),
        windows=(window_of(truth, where=f"{where}: ground_truth"),),
        captions=tuple(_caption(c, f"{where}: captions[{i}]") for i, c in enumerate(list_of(row, "captions", where=where))),
        split=split,
        source="taro",
    )
    return flag_zero_length(sample)


def _caption(sentence: Any, where: str) -> Caption:
    """ "From 1.0s to 2.5s, a man sits." -> Caption(1.0, 2.5, the sentence); one time alone is a moment."""
    if not isinstance(sentence, str):
        raise DataError(f"{where}: a caption is a text, not {type(sentence).__name__}")
    times = stated_range(sentence)
    if times is None:
        raise DataError(f"{where}: states no time in seconds: {sentence[:60]!r}")
    start, end = window_of(list(times), where=where)
    return Caption(start, end, sentence)
