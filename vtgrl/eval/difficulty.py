"""`vtgrl data difficulty`: how well a model answers training rows, written into them; and a set drawn by it (Time-R1).

Answers are kept in OUT.answers/predictions.jsonl as they come, by row and by what made them (weights, prompt, frames, decoding):
a second start goes on where the first ended, and drawing another number of rows asks no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.log import logger
from vtgrl.core.schema import Dtype, GrpoRecipe, SelectConfig
from vtgrl.core.types import Sample
from vtgrl.data.load import load_samples
from vtgrl.data.select.rows import select_rows, stated_p, with_difficulty
from vtgrl.data.write import write_samples
from vtgrl.eval.model_run import Plan, open_plan, run_key
from vtgrl.eval.progress import show_progress
from vtgrl.eval.run import BATCH, check_samples, evaluate
from vtgrl.eval.types import MISSING
from vtgrl.model.load import load_parts
from vtgrl.rollout.standalone import choose_dtype, choose_engine

SOLVED = 0.7
"""Above this p, Time-R1's filter calls a row solved."""


@dataclass(frozen=True)
class DifficultyOptions:
    """recipe: `model.path` (empty: no model, the rows state their difficulty), `data`, `video` and `validation` of it are used, so
    that a row is asked as in training. select: rows that are written; all when its k is 0."""

    recipe: GrpoRecipe
    out: Path
    engine: Literal["", "hf", "vllm"] = ""
    dtype: Dtype | None = None
    batch: int = BATCH
    select: SelectConfig = field(default_factory=SelectConfig)


@dataclass(frozen=True)
class DifficultyReport:
    """rows: read; failed: id -> why a row got no answer (it is not written). mean: of p over the answered rows; histogram: of
    difficulty = 100 p, ten wide, the last bin holds 100 alone. solved: p > 0.7; hopeless: p = 0. written: rows in `out`."""

    out: str
    model: str
    rows: int
    answered: int
    failed: dict[str, str]
    mean: float
    solved: int
    hopeless: int
    histogram: tuple[int, ...]
    written: int


def rate(options: DifficultyOptions) -> DifficultyReport:
    """Answer every row (or trust what it states), write the rows with `meta.difficulty` = 100 x IoU. HIGH IS EASY.

    Raises:
        ConfigError: a model or a recipe that cannot be used; with `select.strict` too few rows.
        DataError: rows that cannot be read or rated; no row at all could be answered.
    """
    data = options.recipe.data
    samples = load_samples(data.source, path=data.path, videos=data.videos, limit=data.limit).samples
    failed: dict[str, str] = {}
    if options.recipe.model.path:
        samples, failed = _answer(options, samples)
    p = np.array([stated_p(s) for s in samples])
    chosen = select_rows(samples, options.select)
    videos = Path(data.videos or Path(data.path).parent)
    write_samples(options.out, chosen, videos=videos)
    logger.info("%s: %d rows; train with data.source=jsonl data.path=%s data.videos=%s", options.out, len(chosen), options.out, videos)
    bins = np.bincount((100.0 * p // 10).astype(int), minlength=11)
    return DifficultyReport(
        out=str(options.out), model=options.recipe.model.path, rows=len(samples) + len(failed), answered=len(samples), failed=failed,
        mean=float(p.mean()), solved=int((p > SOLVED).sum()), hopeless=int((p == 0).sum()), histogram=tuple(map(int, bins)),
        written=len(chosen),
    )  # fmt: skip


def _answer(options: DifficultyOptions, samples: Sequence[Sample]) -> tuple[tuple[Sample, ...], dict[str, str]]:
    """-> (rows with the difficulty that the model gives them, id -> why a row has no answer)."""
    recipe = options.recipe
    if recipe.validation.temperature:
        raise ConfigError(f"validation.temperature is {recipe.validation.temperature:g}: difficulty is that of the greedy answer; use 0")
    check_samples(samples)
    plan = Plan(
        choose_engine(options.engine), choose_dtype(options.dtype), recipe.data.prompt, recipe.video, recipe.validation,
        recipe.data.max_prompt_tokens,
    )  # fmt: skip
    model, seed = recipe.model.path, recipe.train.seed
    engine, builder = open_plan(load_parts(model), plan, seed=seed)
    try:
        result = evaluate(
            engine, builder, samples, sampling=plan.sampling, seed=seed, version=0, batch=options.batch,
            out=options.out.with_name(f"{options.out.name}.answers"), run=run_key(model, plan, seed=seed), progress=show_progress(),
            header={"model": model, "engine": plan.engine, "dtype": plan.dtype},
        )  # fmt: skip
    finally:
        engine.close()
        builder.close()
    failed = {row["id"]: str(row["error"]) for row in result.rows if row["kind"] == MISSING}
    if len(failed) == len(samples):
        raise DataError(f"none of the {len(samples)} rows could be answered; first: {next(iter(failed.values()))}")
    rated = [with_difficulty(s, row["iou"], pred=row["pred"]) for s, row in zip(samples, result.rows, strict=True) if s.id not in failed]
    return tuple(rated), failed
