"""Tensors between scoring, advantage and loss. Pure maths: no I/O, no distributed code.

Shape legend: N rows (answers), T steps (tokens; denoise steps for flow models), all padded on the right; G answers a group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, eq=False)
class AdvantageInputs:
    """reward_N: float64, one scalar a row (NaN: the row has no reward). group_N: int64 id of the row's prompt.
    mask_NT: bool, trained steps. token_reward_NT: float64 extra reward per step (KL in the reward) or None; 0 on padding.
    Holds ALL rows of the step, gathered from all ranks."""

    reward_N: torch.Tensor
    group_N: torch.Tensor
    mask_NT: torch.Tensor
    token_reward_NT: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Advantages:
    """adv_NT: float64, 0 outside the mask and for rows without a reward, never NaN. metrics: for the log."""

    adv_NT: torch.Tensor
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LossInputs:
    """logp_NT carries the gradient; the rest does not. mask_NT: bool. ref_logp_NT: None unless a component needs it.

    weight_NT: what a trained step counts, beside its row's weight (given tokens may count less); None: 1 each.
    """

    logp_NT: torch.Tensor
    old_logp_NT: torch.Tensor
    adv_NT: torch.Tensor
    mask_NT: torch.Tensor
    ref_logp_NT: torch.Tensor | None = None
    entropy_NT: torch.Tensor | None = None
    weight_NT: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class LossOutput:
    """loss_NT: per step, not yet aggregated, 0 outside the mask. metrics_NT: per-step indicators (clipped, ratio, ...)
    that the loop averages over trained steps exactly like the loss."""

    loss_NT: torch.Tensor
    metrics_NT: dict[str, torch.Tensor] = field(default_factory=dict)
