"""Dr. GRPO: the group's mean as baseline and no division, which would weight easy and hard prompts up (arXiv:2503.20783).

A_i = r_i - mean_group. Goes with `aggregate: constant`, the other half of the paper.
"""

from __future__ import annotations

from vtgrl.algo.groups import broadcast, centred, group_stats, metrics, row_reward
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.registry import NoConfig, register


@register("advantage", "dr_grpo", paper="arXiv:2503.20783")
def dr_grpo(inputs: AdvantageInputs, *, config: NoConfig) -> Advantages:
    """Reward minus the group's mean, not scaled. In expectation (G - 1) / G of the policy gradient."""
    reward_N = row_reward(inputs)
    stats = group_stats(reward_N, inputs.group_N)
    adv_NT = broadcast(centred(reward_N, stats), inputs.mask_NT)
    return Advantages(adv_NT, metrics(reward_N, inputs.group_N, stats, adv_NT))
