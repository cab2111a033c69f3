"""The passes that the objective needs, each once, and the advantages of all ranks' rows.

Shape legend: N local answers, T longest local answer; gathered tensors hold the rows of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import pad

from vtgrl.algo.groups import row_reward
from vtgrl.algo.kl import kl_NT
from vtgrl.algo.prefixed import PrefixedRows, apply_rule
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.schema import GrpoRecipe
from vtgrl.reward.types import RewardTable
from vtgrl.train.reference import Reference
from vtgrl.train.rollouts import Rollouts
from vtgrl.train.session import Session
from vtgrl.train.update import score
from vtgrl.train.world import World


@dataclass(frozen=True, eq=False)
class Annotated:
    """adv_NT: float64. mask_NT: bool, steps that train: those of the rollouts without the rows that were dropped. old_logp_NT: None when
    one update follows, whose own log-probs then are the old ones (ratio 1)."""

    adv_NT: torch.Tensor
    mask_NT: torch.Tensor
    old_logp_NT: torch.Tensor | None
    ref_logp_NT: torch.Tensor | None
    metrics: dict[str, float] = field(default_factory=dict)


def trainer_temperature(recipe: object) -> float:
    """The trainer scores at the sampler's temperature; a greedy sampler's log-probs are untempered."""
    return recipe.rollout.sampling.temperature or 1.0  # type: ignore[attr-defined,no-any-return]


def annotate(
    session: Session, rollouts: Rollouts, table: RewardTable, *, reference: Reference | None, old_logp_NT: torch.Tensor | None = None
) -> Annotated:
    """Score under the old and the reference policy where the recipe needs it, then compute advantages (collective).

    `old_logp_NT`: the trainer's log-probs, where an earlier pass of this step has made them.
    """
    algo = session.recipe.algo
    temperature = trainer_temperature(session.recipe)
    in_reward = reference is not None and algo.kl.where == "reward"
    old = ref = token_reward = None
    if algo.updates * algo.epochs > 1 or in_reward:
        limit = session.recipe.train.tokens_per_micro_batch
        old = old_logp_NT
        if old is None:
            old = rollouts.pad(score(session.engine, rollouts.groups, max_tokens=limit, temperature=temperature))
    if reference is not None:
        ref = rollouts.pad(reference.score(rollouts.groups, temperature=temperature))
    if in_reward and old is not None and ref is not None:
        token_reward = -algo.kl.coef * kl_NT(old.double(), ref.double(), algo.kl.kind) * (rollouts.answer_NT & ~rollouts.given_NT)
    found = advantages(session, rollouts, table, token_reward)
    return Annotated(found.adv_NT, rollouts.mask_NT & found.kept_N[:, None], old, ref, found.metrics)


def advantages(session: Session, rollouts: Rollouts, table: RewardTable, token_reward: torch.Tensor | None) -> PrefixedRows:
    """Advantages of the local rows, computed from the rows of all ranks, and which rows train (collective)."""
    world: World = session.world
    mine = (table.total, [r.group for r in rollouts.rows], rollouts.mask_NT, token_reward, rollouts.prefixed_N)
    parts = world.gather(mine)
    width = max(part[2].shape[1] for part in parts)
    number = {name: i for i, name in enumerate(dict.fromkeys(g for part in parts for g in part[1]))}
    inputs = AdvantageInputs(
        reward_N=torch.tensor([r for part in parts for r in part[0]], dtype=torch.float64),
        group_N=torch.tensor([number[g] for part in parts for g in part[1]], dtype=torch.int64),
        mask_NT=_stack([part[2] for part in parts], width),
        token_reward_NT=None if token_reward is None else _stack([part[3] for part in parts], width),
    )
    all_rows: Advantages = session.recipe.algo.advantage(inputs)
    ruled = _ruled(all_rows, inputs, torch.cat([part[4] for part in parts]), session.recipe)
    begin = sum(len(part[0]) for part in parts[: world.rank])
    here = slice(begin, begin + len(rollouts.rows))
    return PrefixedRows(ruled.adv_NT[here, : rollouts.mask_NT.shape[1]], ruled.kept_N[here], ruled.metrics)


def _ruled(found: Advantages, inputs: AdvantageInputs, prefixed_N: torch.Tensor, recipe: GrpoRecipe) -> PrefixedRows:
    """Advantages after the rule for prefixed rows; without a curriculum and without such rows there is nothing to say about them."""
    if recipe.curriculum.name == "none" and not bool(prefixed_N.any()):
        return PrefixedRows(found.adv_NT, torch.ones_like(prefixed_N), found.metrics)
    ruled = apply_rule(
        found.adv_NT,
        reward_N=row_reward(inputs),
        group_N=inputs.group_N,
        mask_NT=inputs.mask_NT,
        prefixed_N=prefixed_N,
        config=recipe.algo.prefixed,
    )
    return replace(ruled, metrics=found.metrics | ruled.metrics)


def _stack(tensors: list[torch.Tensor | None], width: int) -> torch.Tensor:
    """Rows of all ranks, padded on the right to one width."""
    return torch.cat([pad(t, (0, width - t.shape[1])) for t in tensors if t is not None])
