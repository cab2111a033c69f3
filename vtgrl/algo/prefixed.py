"""Answers whose first tokens were given to the policy (a curriculum's prefix): which of them train, and how much.

Such a row was not sampled by the policy, so its importance ratio is unknown. Its loss is -A log pi on all its tokens, given and
sampled (TaRO, arXiv:2606.09248: advantage-weighted behaviour cloning), at every update of a batch: its "old" log-probs are those of
the pass itself (`as_cloning`), so the ratio is 1 with the gradient of log pi, nothing is clipped, and no denominator is needed,
whatever the loss and however many updates follow.

Rules on a prefixed row with advantage A (the mean over its trained steps); rows of the policy's own are never touched:

    mask    A > 0 keeps A, else the row is dropped           (TaRO's recipe and the paper)
    clone   A > 0 has weight 1, else dropped
    awr     A > 0 has weight exp(A / beta), at most LARGEST_WEIGHT, else dropped. Theirs clones bad rows too: exp(-1) = 0.37 for A = -1
    raft    the group's best reward has weight 1, if A > 0; equals share it, so a group is never cloned more than once. Theirs gives
            every row of a group of equal rewards weight 1, though nothing in it is better than anything else
    none    A as it is: bad constructions are pushed away, though the policy would not have made them

A dropped row is masked: it is in no normaliser and has no KL term. (`aggregate: constant` divides by rows x max_tokens, which by
its definition does not depend on what was sampled.)

Shape legend: N rows of the whole step, T steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from vtgrl.algo.types import LossInputs
from vtgrl.core.schema import PrefixedConfig

LARGEST_WEIGHT = 20.0
"""Of awr: what the authors of advantage-weighted regression use (arXiv:1910.00177, section 5)."""


@dataclass(frozen=True, eq=False)
class PrefixedRows:
    """adv_NT: float64, the advantages that train, 0 on dropped rows. kept_N: bool, False on dropped rows. metrics: for the log."""

    adv_NT: torch.Tensor
    kept_N: torch.Tensor
    metrics: dict[str, float]


def apply_rule(
    adv_NT: torch.Tensor,
    *,
    reward_N: torch.Tensor,
    group_N: torch.Tensor,
    mask_NT: torch.Tensor,
    prefixed_N: torch.Tensor,
    config: PrefixedConfig,
) -> PrefixedRows:
    """Advantages and kept rows after the recipe's rule; needs the rows of whole groups.

    Args:
        reward_N: float64, NaN for a row without a reward (its advantage is 0); read by `raft`.
        prefixed_N: bool, rows whose first tokens were given.
    """
    row_N = adv_NT.sum(1) / mask_NT.sum(1).clamp(min=1)
    kept_N = ~prefixed_N | _keeps(row_N, reward_N, group_N, config)
    weight_N = _weight(row_N, reward_N, group_N, prefixed_N & kept_N, config)
    changed_NT = adv_NT if weight_N is None else torch.where(prefixed_N[:, None] & mask_NT, weight_N[:, None], adv_NT)
    changed_NT = torch.where(kept_N[:, None], changed_NT, 0.0)
    return PrefixedRows(changed_NT, kept_N, _metrics(changed_NT, reward_N, mask_NT, prefixed_N, kept_N))


def _keeps(row_N: torch.Tensor, reward_N: torch.Tensor, group_N: torch.Tensor, config: PrefixedConfig) -> torch.Tensor:
    if config.rule == "none":
        return torch.ones_like(row_N, dtype=torch.bool)
    good_N = row_N > 0
    return good_N & (reward_N == _best(reward_N, group_N)) if config.rule == "raft" else good_N


def _weight(
    row_N: torch.Tensor, reward_N: torch.Tensor, group_N: torch.Tensor, cloned_N: torch.Tensor, config: PrefixedConfig
) -> torch.Tensor | None:
    """Weight of the cloned rows in place of their advantage; None: the advantage stays."""
    if config.rule == "clone":
        return torch.ones_like(row_N)
    if config.rule == "awr":
        return (row_N / config.beta).exp().clamp(max=LARGEST_WEIGHT)
    if config.rule == "raft":
        return 1 / _per_group(cloned_N.to(row_N.dtype), group_N, "sum", 0.0).clamp(min=1)
    return None


def _best(reward_N: torch.Tensor, group_N: torch.Tensor) -> torch.Tensor:
    """Largest reward of the row's group."""
    return _per_group(reward_N.nan_to_num(nan=-torch.inf), group_N, "amax", -torch.inf)


def _per_group(value_N: torch.Tensor, group_N: torch.Tensor, reduce: str, start: float) -> torch.Tensor:
    ids, index_N = torch.unique(group_N, return_inverse=True)
    return value_N.new_full((len(ids),), start).scatter_reduce(0, index_N, value_N, reduce)[index_N]


def _metrics(
    adv_NT: torch.Tensor, reward_N: torch.Tensor, mask_NT: torch.Tensor, prefixed_N: torch.Tensor, kept_N: torch.Tensor
) -> dict[str, float]:
    """`adv_kept`: mean of what the kept prefixed rows train with; `dropped`: share of the prefixed rows that train nothing;
    `reward` and `reward_free`: mean reward of prefixed and of own rows. 0 where there is no such row."""
    adv_N = adv_NT.sum(1) / mask_NT.sum(1).clamp(min=1)
    return {
        "curriculum/adv_kept": _mean(adv_N[prefixed_N & kept_N & mask_NT.any(1)]),
        "curriculum/dropped": _mean((~kept_N)[prefixed_N].double()),
        "curriculum/reward": _mean(reward_N[prefixed_N & reward_N.isfinite()]),
        "curriculum/reward_free": _mean(reward_N[~prefixed_N & reward_N.isfinite()]),
    }


def _mean(values: torch.Tensor) -> float:
    return float(values.mean()) if values.numel() else 0.0


def as_cloning(inputs: LossInputs, prefixed_N: torch.Tensor) -> LossInputs:
    """Prefixed rows with ratio 1 and the gradient of -A log pi, whatever drew them and however often the batch is used."""
    return replace(inputs, old_logp_NT=torch.where(prefixed_N[:, None], inputs.logp_NT.detach(), inputs.old_logp_NT))
