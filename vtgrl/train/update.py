"""One optimizer step over packed rows: the same for every objective.

Shape legend: N answers of this rank, R answer tokens of one packed row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from vtgrl.model.packing import make_rows, pad_count
from vtgrl.model.types import PackedGroup, PackedRow, PolicyOutput
from vtgrl.train.engine_ds import DsEngine, StepInfo

RowLoss = Callable[[list[int], PolicyOutput], tuple[torch.Tensor, dict[str, float]]]
"""(indices of the row's groups, scored answers) -> (this row's share of the loss, sums for the log)."""


@dataclass(frozen=True)
class UpdateResult:
    """`sums` are totals over all rows and ranks; `tokens` packed tokens of this rank."""

    info: StepInfo
    sums: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    tokens: int = 0


def pack(engine: DsEngine, groups: Sequence[PackedGroup], *, max_tokens: int) -> list[PackedRow]:
    """Rows of this rank, padded with empty ones so that every rank makes the same number of forward passes."""
    rows = make_rows(groups, max_tokens=max_tokens, hidden=engine.policy.hidden_size)
    return pad_count(rows, count=engine.world.max(len(rows)))


def update(
    engine: DsEngine,
    groups: Sequence[PackedGroup],
    row_loss: RowLoss,
    *,
    lr: float,
    max_tokens: int,
    temperature: float,
    entropy: bool = False,
) -> UpdateResult | None:
    """Forward and backward over all rows, then one optimizer step (collective). None when no rank has a row."""
    rows = pack(engine, groups, max_tokens=max_tokens)
    if not rows:
        return None
    index = {id(group): i for i, group in enumerate(groups)}
    sums: dict[str, float] = {}
    for position, row in enumerate(rows):
        output = engine.forward(row, temperature=temperature, entropy=entropy)
        loss, row_sums = row_loss([index[id(g)] for g in row], output) if row else (output.logp_R.sum(), {})
        engine.backward(loss, last=position == len(rows) - 1)
        for key, value in row_sums.items():
            sums[key] = sums.get(key, 0.0) + value
    info = engine.step(lr=lr)
    return UpdateResult(info, engine.world.sum(sums), len(rows), sum(g.tokens for g in groups))


def score(engine: DsEngine, groups: Sequence[PackedGroup], *, max_tokens: int, temperature: float) -> list[torch.Tensor]:
    """Log-probs of every group's answers, one after the other ([R] a group), without a gradient (collective)."""
    rows = pack(engine, groups, max_tokens=max_tokens)
    found: dict[int, torch.Tensor] = {}

    def run() -> None:
        for row in rows:
            logp_R = engine.forward(row, temperature=temperature).logp_R
            sizes = [sum(map(len, g.answers)) for g in row]
            found.update(zip(map(id, row), logp_R.split(sizes), strict=True))

    engine.evaluating(run)
    return [found[id(group)] for group in groups]
