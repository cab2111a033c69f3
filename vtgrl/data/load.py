"""Open an annotation file through its source: the one entry for training, evaluation and `vtgrl data`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.log import logger
from vtgrl.core.registry import Component
from vtgrl.data.samples import LoadReport

SHOWN_REJECTED = 5
"""Rejected rows that are written out in the log; the report holds all."""


def load_samples(source: Component, *, path: Path | str, videos: Path | str = "", limit: int = 0) -> LoadReport:
    """Read `path` with `source` and log what could not be used or was changed.

    Args:
        source: component of kind "source".
        videos: folder that relative video paths start from; empty: the folder of `path`.
        limit: keep only the first so many samples; 0: all.

    Raises:
        ConfigError: `path` is empty.
        DataError: the file cannot be read, holds no usable row, or the source gave two rows the same id.
    """
    if not str(path):
        raise ConfigError("data.path is empty: name the annotation file (data.path=FILE)")
    path = Path(path)
    report: LoadReport = source(path, videos=Path(videos) if str(videos) else path.parent)
    _log(path, report)
    _unique(path, report)
    return replace(report, samples=report.samples[:limit]) if limit else report


def _unique(path: Path, report: LoadReport) -> None:
    """Rows are told apart by id: groups, draws, the filter and the records of a run (sources made with `collect` see to it)."""
    seen: dict[str, int] = {}
    for number, sample in enumerate(report.samples, 1):
        first = seen.setdefault(sample.id, number)
        if first != number:
            raise DataError(f"{path}: samples {first} and {number} share the id {sample.id!r}; the source has to give every row its own")


def _log(path: Path, report: LoadReport) -> None:
    logger.info("%s: %d samples, %d rows rejected", path, len(report.samples), len(report.rejected))
    for where, reason in report.rejected[:SHOWN_REJECTED]:
        logger.warning("row left out: %s: %s", where, reason)
    if len(report.rejected) > SHOWN_REJECTED:
        logger.warning("%s: %d more rows left out", path, len(report.rejected) - SHOWN_REJECTED)
    for note in report.notes:
        logger.warning("%s: %s", path, note)
