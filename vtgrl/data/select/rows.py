"""Samples that state their difficulty: reading it, writing it, and drawing a training set by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.log import logger
from vtgrl.core.schema import SelectConfig
from vtgrl.core.types import Sample, Window
from vtgrl.data.select.draw import draw_rows
from vtgrl.data.select.rule import easy_to_hard

DIFFICULTY = "difficulty"
"""Key in `meta`: 100 x IoU of a model's answer with the truth, Time-R1's convention. HIGH IS EASY."""

_FIX = "write it with `vtgrl data difficulty`"


def stated_p(sample: Sample) -> float:
    """p = difficulty / 100 of a row.

    Raises:
        DataError: the row states none, or it is not a number from 0 to 100.
    """
    value = sample.meta.get(DIFFICULTY)
    if value is None:
        raise DataError(f"row {sample.id!r} states no difficulty (meta.{DIFFICULTY}, 100 x IoU of a model's answer): {_FIX}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 100.0:
        raise DataError(f"row {sample.id!r}: meta.{DIFFICULTY} is {value!r}, not a number from 0 (hopeless) to 100 (solved): {_FIX}")
    return float(value) / 100.0


def with_difficulty(sample: Sample, p: float, *, pred: Window | None) -> Sample:
    """The row with `meta.difficulty` = 100 p and the answer it comes from (`meta.pred`, as in Time-R1's list)."""
    meta = {key: value for key, value in sample.meta.items() if key not in (DIFFICULTY, "pred")}
    answer = {} if pred is None else {"pred": list(pred)}
    return replace(sample, meta={**meta, DIFFICULTY: 100.0 * p, **answer})


def select_rows(samples: Sequence[Sample], config: SelectConfig) -> tuple[Sample, ...]:
    """`config.k` rows drawn by their difficulty, in the order of `samples`; all of them when k is 0.

    Raises:
        DataError: a row states no difficulty, or none can be drawn.
        ConfigError: `config.strict`, and fewer than k rows can be drawn.
    """
    if not config.k:
        return tuple(samples)
    p = _stated(samples)
    drawn = draw_rows(
        p, ids=[s.id for s in samples], k=config.k, mu=config.mu, sigma=config.sigma, above=config.above, seed=config.seed
    )  # fmt: skip
    if not drawn.rows:
        raise DataError(f"data.select: none of {len(samples)} rows has p > {config.above:g} (p: difficulty / 100); lower data.select.above")
    if drawn.short:
        message = f"data.select.k={config.k}: {len(samples)} rows, {drawn.eligible} of them with p > {config.above:g}"
        if config.strict:
            raise ConfigError(f"{message}: too few; lower data.select.k or set data.select.strict=off")
        logger.warning("%s: all %d are taken", message, drawn.eligible)
    return tuple(samples[i] for i in drawn.rows)


def sorted_by_ease(samples: Sequence[Sample], *, seed: int) -> list[int]:
    """Indices of the rows, easy (high stated difficulty) to hard.

    Raises:
        DataError: a row states no difficulty.
    """
    return easy_to_hard(_stated(samples), ids=[s.id for s in samples], seed=seed)


def _stated(samples: Sequence[Sample]) -> list[float]:
    p = [stated_p(s) for s in samples]
    largest = max(p, default=math.nan)
    if 0.0 < largest <= 0.01:
        logger.warning("no meta.%s is above 1: it is 100 x IoU, from 0 to 100; is this IoU itself?", DIFFICULTY)
    return p
