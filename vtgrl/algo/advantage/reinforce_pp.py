"""REINFORCE++: returns-to-go without a critic, normalised over all trained steps of the batch (arXiv:2501.03262).

A_it = r_i + sum_{s >= t} k_is, with the step rewards k (KL in the reward; gamma = 1), then (A - mean) / std over the batch.
`baseline: group` takes the prompt's mean reward off first (the paper's REINFORCE++-baseline).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from vtgrl.algo.groups import broadcast, centred, group_stats, metrics
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.registry import opt, register


@dataclass(frozen=True)
class ReinforcePpConfig:
    """Settings of the REINFORCE++ advantage."""

    baseline: Literal["none", "group"] = opt("none", "group: take the mean reward of the prompt's answers off")
    eps: float = opt(1e-8, "added to the standard deviation of the batch", ge=0)


@register("advantage", "reinforce_pp", config=ReinforcePpConfig, paper="arXiv:2501.03262")
def reinforce_pp(inputs: AdvantageInputs, *, config: ReinforcePpConfig) -> Advantages:
    """Returns-to-go, normalised over all trained steps of all prompts of the batch."""
    reward_N = inputs.reward_N.double()
    if inputs.token_reward_NT is not None:  # one bad step reward makes the whole row worthless
        reward_N = torch.where(inputs.token_reward_NT.isfinite().all(1), reward_N, torch.nan)
    reward_N = torch.where(reward_N.isfinite(), reward_N, torch.nan)
    stats = group_stats(reward_N, inputs.group_N)
    base_N = centred(reward_N, stats) if config.baseline == "group" else reward_N
    live_NT = inputs.mask_NT & ~reward_N.isnan().unsqueeze(1)
    return_NT = broadcast(base_N, live_NT)
    if inputs.token_reward_NT is not None:
        return_NT = return_NT + torch.where(live_NT, _to_go(inputs.token_reward_NT.double()), 0.0)
    adv_NT = _normalised(return_NT, live_NT, eps=config.eps)
    return Advantages(adv_NT, metrics(reward_N, inputs.group_N, stats, adv_NT))


def _to_go(step_reward_NT: torch.Tensor) -> torch.Tensor:
    """Sum from each step to the end of the row."""
    return step_reward_NT.flip(1).cumsum(1).flip(1)


def _normalised(return_NT: torch.Tensor, live_NT: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Zero mean and unit (population) variance over the live steps; all 0 when they are equal."""
    live = return_NT[live_NT]
    if live.numel() == 0 or bool((live == live[0]).all()):
        return torch.zeros_like(return_NT)
    return torch.where(live_NT, (return_NT - live.mean()) / (live.std(correction=0) + eps), 0.0)
