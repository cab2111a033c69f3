"""Statistics of groups of rows, found by id: never by stride, so the order and the size of the groups do not matter.

Shape legend: N rows (answers) of the whole step. Everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vtgrl.algo.types import AdvantageInputs


@dataclass(frozen=True, eq=False)
class GroupStats:
    """Per row, about the row's group; rows without a reward are left out of every statistic.

    count_N: rows with a reward. mean_N: their mean. std_N: unbiased, 0 for fewer than two. flat_N: all its rewards are equal (or
    there is at most one), so nothing can be learned: exactly, not up to rounding.
    """

    count_N: torch.Tensor
    mean_N: torch.Tensor
    std_N: torch.Tensor
    flat_N: torch.Tensor


def row_reward(inputs: AdvantageInputs) -> torch.Tensor:
    """reward_N plus the row's step rewards (KL in the reward): what a group baseline compares. NaN: no reward."""
    reward_N = inputs.reward_N.double()
    if inputs.token_reward_NT is not None:
        reward_N = reward_N + inputs.token_reward_NT.double().sum(1)
    return torch.where(reward_N.isfinite(), reward_N, torch.nan)


def group_stats(reward_N: torch.Tensor, group_N: torch.Tensor) -> GroupStats:
    """Statistics over the rows of equal id whose reward is not NaN."""
    ids, index_N = torch.unique(group_N, return_inverse=True)
    good_N = ~reward_N.isnan()
    value_N = torch.where(good_N, reward_N, 0.0)

    def per_row(values_N: torch.Tensor) -> torch.Tensor:
        return reward_N.new_zeros(len(ids)).index_add(0, index_N, values_N.to(reward_N.dtype))[index_N]

    def extreme(fill: float, reduce: str) -> torch.Tensor:
        filled_N = torch.where(good_N, reward_N, fill)
        return reward_N.new_full((len(ids),), fill).scatter_reduce(0, index_N, filled_N, reduce)[index_N]

    count_N = per_row(good_N)
    mean_N = per_row(value_N) / count_N.clamp(min=1)
    square_N = per_row(torch.where(good_N, (value_N - mean_N) ** 2, 0.0))
    flat_N = extreme(torch.inf, "amin") >= extreme(-torch.inf, "amax")  # no reward at all: inf >= -inf
    std_N = torch.where(flat_N, 0.0, (square_N / (count_N - 1).clamp(min=1)).sqrt())
    return GroupStats(count_N, mean_N, std_N, flat_N)


def centred(reward_N: torch.Tensor, stats: GroupStats) -> torch.Tensor:
    """Reward minus the group's mean; exactly 0 in a flat group and for rows without a reward."""
    return torch.where(stats.flat_N | reward_N.isnan(), 0.0, reward_N - stats.mean_N)


def broadcast(adv_N: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """One advantage a row -> every trained step of the row, 0 elsewhere."""
    return torch.where(mask_NT, adv_N.unsqueeze(1), 0.0)


def metrics(reward_N: torch.Tensor, group_N: torch.Tensor, stats: GroupStats, adv_NT: torch.Tensor) -> dict[str, float]:
    """What every advantage reports: how many rows and groups can teach, and how large the numbers are."""
    good_N = ~reward_N.isnan()
    first = _first_rows(group_N)
    groups = len(first)
    count = stats.count_N[first]
    known = reward_N[good_N]
    out = {
        "adv/groups": float(groups),
        "adv/flat_groups": _share(stats.flat_N[first] & (count > 0), groups),
        "adv/missing_groups": float((count == 0).sum()),
        "adv/missing_rows": float((~good_N).sum()),
        "adv/group_std": float(stats.std_N[first][count > 0].mean()) if bool((count > 0).any()) else 0.0,
        "adv/abs_max": float(adv_NT.abs().max()) if adv_NT.numel() else 0.0,
    }
    if len(known):
        out |= {"adv/reward_mean": float(known.mean()), "adv/reward_std": float(known.std(correction=0))}
    return out


def _first_rows(group_N: torch.Tensor) -> torch.Tensor:
    """Index of the first row of every group."""
    ids, index_N = torch.unique(group_N, return_inverse=True)
    rows = torch.arange(len(group_N), device=group_N.device)
    return rows.new_full((len(ids),), len(group_N)).scatter_reduce(0, index_N, rows, "amin")


def _share(flags: torch.Tensor, total: int) -> float:
    return float(flags.sum()) / total if total else 0.0
