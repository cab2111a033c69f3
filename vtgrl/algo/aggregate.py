"""How much every trained step counts, so that the objective is a plain sum over all rows of the optimizer step.

The weights depend on the trained lengths of ALL rows of the step (all micro-batches, all ranks) and on nothing else: not on padding,
row order, micro-batches or rank count (public faults 1 and 5). Each rank sums its own rows; the step's loss is the sum over ranks.
"""

from __future__ import annotations

from typing import Literal

import torch

Aggregate = Literal["token_mean", "seq_mean", "constant"]


def row_weights(mode: Aggregate, lengths_N: torch.Tensor, *, max_tokens: int) -> torch.Tensor:
    """Weight of every step of a row: objective = sum_i weight_i sum_t loss_it. Returns float64 [N].

    Args:
        mode: token_mean: 1 / (all trained steps). seq_mean: 1 / (rows that train x row length). constant: 1 / (rows x max_tokens),
            the unbiased form of Dr. GRPO (arXiv:2503.20783).
        lengths_N: trained steps of all rows of the optimizer step (float where steps count less than 1). A row with 0 (a masked
            or dropped answer) has weight 0 and does not count as a row in seq_mean; in constant it counts, because that divisor must
            not depend on what was sampled.
        max_tokens: longest answer allowed; read by `constant` only.
    """
    lengths = lengths_N.to(torch.float64)
    trains = lengths > 0
    if not bool(trains.any()):
        return torch.zeros_like(lengths)
    if mode == "token_mean":
        return trains.double() / lengths.sum()
    if mode == "seq_mean":
        return torch.where(trains, 1 / (trains.sum() * torch.where(trains, lengths, 1.0)), 0.0)
    return trains.double() / (max_tokens * len(lengths))
