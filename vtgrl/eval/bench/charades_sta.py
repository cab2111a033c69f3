"""Charades-STA (Gao et al. 2017), 3,720 test queries on 1,334 videos; 562 published windows end after the video."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vtgrl.core.errors import DataError
from vtgrl.core.registry import opt, register
from vtgrl.data.sources.common import read_text
from vtgrl.eval.benchmark import BenchConfig, Gather, jsonl_rows, numbered_aliases
from vtgrl.eval.types import GroundTruth

TEST_ROWS = 3720
_FIRST_LIGHTHOUSE_ID = 12404


@dataclass(frozen=True)
class CharadesConfig(BenchConfig):
    """Published windows, or clipped to the video by a protocol (`--clip-gt on`); lighthouse's ranked evaluator clips."""

    official_clips: ClassVar[bool] = True
    csv: str = opt("", "Charades_v1_test.csv with the lengths; empty: beside the annotation file")


@register("benchmark", "charades_sta", config=CharadesConfig, paper="arXiv:1705.02101")
def charades_sta(path: Path, *, config: CharadesConfig) -> GroundTruth:
    """The text file of 2D-TAN with the Charades csv beside it, or JSONL rows of TaRO or lighthouse."""
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
        notes: tuple[str, ...] = ()
    else:
        notes = _read_text_file(path, gather, config)
    return gather.truth(aliases=_aliases(gather), notes=notes)


def _read_text_file(path: Path, gather: Gather, config: CharadesConfig) -> tuple[str, ...]:
    lengths, notes = _lengths(path, config)
    for number, line in enumerate(read_text(path).splitlines(), 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            head, query = line.split("##", 1)
            video, start, end = head.split()
            window = [float(start), float(end)]
        except ValueError:
            gather.reject(where, 'expected "VIDEO START END##query"')
            continue
        gather.add(where, id=f"charades_{number - 1}", video=f"{video}.mp4", query=query, windows=[window], duration=lengths.get(video))
    return notes


def _lengths(path: Path, config: CharadesConfig) -> tuple[dict[str, float], tuple[str, ...]]:
    """Video -> seconds by the Charades csv; without it no durations."""
    if config.csv and not Path(config.csv).is_file():
        raise DataError(f"{config.csv}: no such file; it should be Charades_v1_test.csv")
    beside = sorted(path.parent.glob("Charades_v1_*.csv")) if not config.csv else [Path(config.csv)]
    lengths: dict[str, float] = {}
    for file in beside:
        for row in csv.DictReader(read_text(file).splitlines()):
            lengths[row["id"]] = float(row["length"])
    if not lengths:
        return {}, (f"no Charades_v1_test.csv beside {path.name}: durations are unknown",)
    return lengths, ()


def _aliases(gather: Gather) -> dict[str, str]:
    """TaRO counts test0.., lighthouse 12404..; only sure for the whole test set, whose order all copies share."""
    if len(gather.rows) != TEST_ROWS:
        return {}
    lighthouse = {str(_FIRST_LIGHTHOUSE_ID + k): s.id for k, s in enumerate(gather.rows) if s.id != str(_FIRST_LIGHTHOUSE_ID + k)}
    return numbered_aliases(gather.rows, "charades_{k}", "test{k}", "charades_sta_{k}") | lighthouse
