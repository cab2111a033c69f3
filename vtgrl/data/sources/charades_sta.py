"""Charades-STA: lines "VIDEO START END##sentence", and the Charades csv that knows how long the videos are."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vtgrl.core.errors import DataError
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.samples import LoadReport, seconds, window_of
from vtgrl.data.sources.common import collect, read_text


@dataclass(frozen=True)
class CharadesStaConfig:
    """Charades-STA text."""

    csv: str = opt("", "Charades_v1_train.csv or _test.csv, for the lengths of the videos; empty: known when a file is opened")
    split: str = opt("test", "split that the samples are given")
    present: bool = opt(False, "leave rows out (named, counted) whose video is not in the folder, for a part of the data set")


@register("source", "charades_sta", config=CharadesStaConfig, paper="arXiv:1705.02101")
def charades_sta(path: Path, *, videos: Path, config: CharadesStaConfig) -> LoadReport:
    """Charades-STA text; windows are ended at the csv's length (562 of the 3,720 test windows go past it).

    The id of a sample is "charades_sta-" and its line number.
    """
    lengths = _lengths(Path(config.csv)) if config.csv else None
    lines = enumerate(read_text(path).splitlines(), 1)
    rows = ((f"{path}:{number}", (number, line)) for number, line in lines if line.strip())
    return collect(rows, lambda row, where: _row(row, where, lengths, videos, config), path=path, videos=videos)


def _row(row: tuple[int, str], where: str, lengths: Mapping[str, float] | None, videos: Path, config: CharadesStaConfig) -> Sample:
    number, line = row
    place, mark, query = line.partition("##")
    fields = place.split()
    if not mark or len(fields) != 3 or not query.strip():
        raise DataError(f'{where}: a line is "VIDEO START END##sentence", not {line[:80]!r}')
    name, start, end = fields
    if lengths is not None and name not in lengths:
        raise DataError(f"{where}: video {name!r} is not in {config.csv}; is it the csv of the other split?")
    if config.present and not (videos / f"{name}.mp4").is_file():
        raise DataError(f"{where}: no {name}.mp4 in {videos}")
    return Sample(
        id=f"charades_sta-{number}",
        task="vtg",
        query=query,
        video=VideoRef(f"{name}.mp4", duration=None if lengths is None else lengths[name]),
        windows=(window_of([_number(start, where), _number(end, where)], where=where),),
        split=config.split,
        source="charades_sta",
        meta={"vid": name},
    )


def _number(text: str, where: str) -> float:
    try:
        return seconds(float(text), where=where)
    except ValueError as error:
        raise DataError(f"{where}: {text!r} is not a number of seconds") from error


def _lengths(path: Path) -> dict[str, float]:
    """Video id -> seconds.

    Raises:
        DataError: missing file or columns, or a length that is not a positive number.
    """
    reader = csv.DictReader(read_text(path).splitlines())
    if not {"id", "length"} <= set(reader.fieldnames or ()):
        raise DataError(f'{path}: needs the columns "id" and "length" of the Charades csv')
    lengths = {}
    for row in reader:
        where = f"{path}:{reader.line_num}"
        lengths[row["id"]] = _number(row["length"] or "", where)
        if lengths[row["id"]] <= 0:
            raise DataError(f"{where}: length {row['length']} is not positive")
    return lengths
