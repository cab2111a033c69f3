"""GRPO: rewards standardised within the group of answers to one prompt.

A_i = (r_i - mean_group) / (std_group + eps), std unbiased (DeepSeekMath, arXiv:2402.03300, section 4.1.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vtgrl.algo.groups import broadcast, centred, group_stats, metrics, row_reward
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.registry import opt, register


@dataclass(frozen=True)
class GrpoConfig:
    """Settings of the GRPO advantage."""

    std: bool = opt(True, "divide by the group's standard deviation")
    eps: float = opt(1e-6, "added to the standard deviation (TaRO 1e-6, Time-R1 1e-4)", ge=0)


@register("advantage", "grpo", config=GrpoConfig, paper="arXiv:2402.03300")
def grpo(inputs: AdvantageInputs, *, config: GrpoConfig) -> Advantages:
    """Reward minus the group's mean, over the group's standard deviation; 0 in groups of one or of equal rewards.

    Rows without a reward are left out of their group and get 0. Step rewards (KL in the reward) are summed into the row's reward:
    the baseline is a number per answer, so it has to see the whole answer's reward.
    """
    reward_N = row_reward(inputs)
    stats = group_stats(reward_N, inputs.group_N)
    adv_N = centred(reward_N, stats)
    if config.std:
        adv_N = torch.where(stats.flat_N, 0.0, adv_N / (stats.std_N + config.eps))
    adv_NT = broadcast(adv_N, inputs.mask_NT)
    return Advantages(adv_NT, metrics(reward_N, inputs.group_N, stats, adv_NT))
