"""RLOO: every answer against the mean of the other answers to its prompt (arXiv:2402.14740).

A_i = r_i - mean_{j != i} r_j = G / (G - 1) (r_i - mean_group): an unbiased policy gradient.
"""

from __future__ import annotations

from vtgrl.algo.groups import broadcast, centred, group_stats, metrics, row_reward
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.registry import NoConfig, register


@register("advantage", "rloo", paper="arXiv:2402.14740")
def rloo(inputs: AdvantageInputs, *, config: NoConfig) -> Advantages:
    """Reward minus the mean of the other answers of the group (leave-one-out); 0 without another answer."""
    reward_N = row_reward(inputs)
    stats = group_stats(reward_N, inputs.group_N)
    scale_N = stats.count_N / (stats.count_N - 1).clamp(min=1)
    adv_NT = broadcast(scale_N * centred(reward_N, stats), inputs.mask_NT)
    return Advantages(adv_NT, metrics(reward_N, inputs.group_N, stats, adv_NT))
