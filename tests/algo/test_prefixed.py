"""Rows whose first tokens were given: which train, with what weight, and in no normaliser when dropped (taro.md 3.4, T17, T18, T20)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from vtgrl.algo.advantage.grpo import GrpoConfig, grpo
from vtgrl.algo.aggregate import Aggregate, row_weights
from vtgrl.algo.loss.gspo import GspoConfig
from vtgrl.algo.loss.ppo_clip import PpoClipConfig
from vtgrl.algo.objective import objective
from vtgrl.algo.prefixed import LARGEST_WEIGHT, PrefixedRows, apply_rule, as_cloning
from vtgrl.algo.types import AdvantageInputs, LossInputs
from vtgrl.core.registry import Component, NoConfig
from vtgrl.core.schema import AlgoConfig, KlConfig, PrefixedConfig

PPO = Component("loss", "ppo_clip", PpoClipConfig(clip_low=0.2, clip_high=0.2, dual_clip=3.0))
GSPO = Component("loss", "gspo", GspoConfig(clip_low=0.1, clip_high=0.1))
MODES: tuple[Aggregate, ...] = ("token_mean", "seq_mean", "constant")


def ruled(rule: Any, rewards: list[float], prefixed: list[int], *, groups: list[int] | None = None, beta: float = 1.0) -> PrefixedRows:
    """GRPO advantages of rows of 2 tokens, after the rule."""
    reward_N = torch.tensor(rewards, dtype=torch.float64)
    group_N = torch.tensor(groups or [0] * len(rewards))
    mask_NT = torch.ones(len(rewards), 2, dtype=torch.bool)
    adv_NT = grpo(AdvantageInputs(reward_N, group_N, mask_NT), config=GrpoConfig(std=False)).adv_NT
    return apply_rule(
        adv_NT,
        reward_N=reward_N,
        group_N=group_N,
        mask_NT=mask_NT,
        prefixed_N=torch.tensor([bool(p) for p in prefixed]),
        config=PrefixedConfig(rule=rule, beta=beta),
    )


def advantages(found: PrefixedRows) -> list[float | None]:
    """Per row; None: dropped."""
    return [float(a) if k else None for a, k in zip(found.adv_NT[:, 0], found.kept_N, strict=True)]


def test_mask_keeps_what_is_better_than_the_group() -> None:
    found = ruled("mask", [2.0, 0.0, 1.0, 1.0], [1, 1, 1, 0])
    assert advantages(found) == [1.0, None, None, 0.0]  # A = 0 teaches nothing; the policy's own row stays
    expected = {"adv_kept": 1.0, "dropped": pytest.approx(2 / 3), "reward": 1.0, "reward_free": 1.0}
    assert found.metrics == {f"curriculum/{key}": value for key, value in expected.items()}
    assert found.adv_NT[1].eq(0).all()


def test_own_rows_are_never_touched() -> None:
    rewards = [2.0, 0.0, 1.0, 1.0]
    plain = ruled("none", rewards, [0, 0, 0, 0])
    for rule in ("mask", "clone", "awr", "raft", "none"):
        assert advantages(ruled(rule, rewards, [0, 0, 0, 0])) == advantages(plain) == [1.0, -1.0, 0.0, 0.0]
        expected = {"adv_kept": 0.0, "dropped": 0.0, "reward": 0.0, "reward_free": 1.0}
        assert ruled(rule, rewards, [0] * 4).metrics == {f"curriculum/{key}": value for key, value in expected.items()}


def test_clone_and_none() -> None:
    assert advantages(ruled("clone", [4.0, 0.0, 2.0, 2.0], [1, 1, 0, 0])) == [1.0, None, 0.0, 0.0]
    assert advantages(ruled("none", [4.0, 0.0, 2.0, 2.0], [1, 1, 0, 0])) == [2.0, -2.0, 0.0, 0.0]


def test_awr_clones_no_bad_row() -> None:
    """T20: A = -1 does not get weight exp(-1)."""
    assert advantages(ruled("awr", [2.0, 0.0], [1, 1])) == [pytest.approx(math.e), None]
    assert advantages(ruled("awr", [2.0, 0.0], [1, 1], beta=2.0)) == [pytest.approx(math.exp(0.5)), None]
    assert advantages(ruled("awr", [2.0, 0.0], [1, 1], beta=0.01))[0] == LARGEST_WEIGHT


def test_raft_clones_one_best_and_nothing_of_equals() -> None:
    """T20: eight equal rewards (A = 0) are eight rows of weight 0; two that tie for the best share its weight."""
    assert advantages(ruled("raft", [1.0] * 8, [1] * 8)) == [None] * 8
    assert advantages(ruled("raft", [2.0, 1.0, 0.0, 0.0], [1, 1, 1, 0])) == [1.0, None, None, -0.75]
    assert advantages(ruled("raft", [2.0, 2.0, 0.0, 0.0], [1, 1, 1, 0])) == [0.5, 0.5, None, -1.0]
    assert advantages(ruled("raft", [1.0, 2.0, 0.0], [1, 0, 1])) == [None, 1.0, None]  # the best is the policy's own


def test_raft_looks_at_each_group_alone_whatever_the_order() -> None:
    rewards, prefixed, groups = [1.0, 5.0, 0.0, 4.0], [1, 1, 1, 1], [7, 3, 7, 3]
    found = advantages(ruled("raft", rewards, prefixed, groups=groups))
    assert found == [1.0, 1.0, None, None]
    back = advantages(ruled("raft", rewards[::-1], prefixed, groups=groups[::-1]))
    assert back == found[::-1]


def test_a_row_without_a_reward_is_dropped_not_cloned() -> None:
    for rule in ("mask", "clone", "awr", "raft"):
        assert advantages(ruled(rule, [math.nan, 1.0, 0.0], [1, 0, 0]))[0] is None


# --- the objective ------------------------------------------------------------------------------------------------


class Toy:
    """Rows of a linear policy, 3 logits a step; lengths differ."""

    def __init__(self, lengths: tuple[int, ...], adv: list[float]) -> None:
        g = torch.Generator().manual_seed(0)
        width = max(lengths)
        self.lengths = lengths
        self.x_NTD = torch.randn(len(lengths), width, 4, generator=g, dtype=torch.float64)
        self.y_NT = torch.randint(0, 3, (len(lengths), width), generator=g)
        self.w_DV = torch.randn(4, 3, generator=g, dtype=torch.float64).requires_grad_()
        self.adv_N = torch.tensor(adv, dtype=torch.float64)
        self.mask_NT = torch.arange(width) < torch.tensor(lengths)[:, None]
        self.shift_NT = 0.5 * torch.randn(len(lengths), width, generator=g, dtype=torch.float64)

    def inputs(self, rows: list[int], **changes: Any) -> LossInputs:
        logp_NT = (self.x_NTD @ self.w_DV).log_softmax(-1).gather(-1, self.y_NT[..., None])[..., 0][rows]
        shift_NT = self.shift_NT[rows]
        base = LossInputs(
            logp_NT,
            (logp_NT + shift_NT).detach(),
            self.adv_N[rows, None].expand_as(logp_NT),
            self.mask_NT[rows],
            (logp_NT - shift_NT).detach(),
        )
        return replace(base, **changes)

    def gradient(self, inputs: LossInputs, algo: AlgoConfig, weight_N: torch.Tensor) -> torch.Tensor:
        loss, _ = objective(inputs, algo=algo, weight_N=weight_N)
        (grad,) = torch.autograd.grad(loss, self.w_DV, retain_graph=True)
        return grad


def algo(mode: Aggregate = "token_mean", loss: Component = PPO, kl: float = 0.0) -> AlgoConfig:
    return AlgoConfig(advantage=Component("advantage", "dr_grpo", NoConfig()), loss=loss, kl=KlConfig(coef=kl), aggregate=mode)


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_dropped_rows_leave_the_normaliser_and_the_kl(mode: Aggregate, kl: float) -> None:
    """T18: one kept row of 100 tokens beside three dropped of 300 has the gradient of the row alone, not a tenth of it."""
    toy = Toy((100, 300, 300, 300), [1.0, 0.0, 0.0, 0.0])
    kept_NT = toy.mask_NT & torch.tensor([True, False, False, False])[:, None]
    weight_N = row_weights(mode, kept_NT.sum(1), max_tokens=512)
    together = toy.gradient(toy.inputs([0, 1, 2, 3], mask_NT=kept_NT), algo(mode, kl=kl), weight_N)
    alone = toy.gradient(toy.inputs([0]), algo(mode, kl=kl), row_weights(mode, torch.tensor([100]), max_tokens=512))
    torch.testing.assert_close(together, alone)
    diluted = toy.gradient(toy.inputs([0, 1, 2, 3]), algo(mode), row_weights(mode, toy.mask_NT.sum(1), max_tokens=512))
    factor = 0.1 if mode == "token_mean" else 0.25
    torch.testing.assert_close(
        diluted, factor * toy.gradient(toy.inputs([0]), algo(mode), row_weights(mode, torch.tensor([100]), max_tokens=512))
    )


def test_constant_divides_by_the_same_number_whatever_was_dropped() -> None:
    toy = Toy((4, 6), [1.0, 0.0])
    kept_NT = toy.mask_NT & torch.tensor([True, False])[:, None]
    weights = row_weights("constant", kept_NT.sum(1), max_tokens=8)
    assert weights.tolist() == [1 / 16, 0.0]


@pytest.mark.parametrize("loss", [PPO, GSPO])
@pytest.mark.parametrize("mode", MODES)
def test_prefixed_rows_have_the_gradient_of_minus_a_log_pi_at_every_update(loss: Component, mode: Aggregate) -> None:
    """T17: with old log-probs of several updates ago, no ratio and no clip touches a prefixed row; own rows keep theirs."""
    toy = Toy((5, 3, 4), [2.0, -1.0, 0.7])
    weight_N = row_weights(mode, torch.tensor(toy.lengths), max_tokens=8)
    prefixed_N = torch.tensor([True, True, False])
    inputs = toy.inputs([0, 1, 2])
    cloned = as_cloning(inputs, prefixed_N)
    found = toy.gradient(cloned, algo(mode, loss), weight_N)
    plain_NT = -(inputs.adv_NT * inputs.logp_NT) * toy.mask_NT * prefixed_N[:, None]
    (expected,) = torch.autograd.grad((plain_NT.sum(1) * weight_N).sum(), toy.w_DV, retain_graph=True)
    own = toy.gradient(toy.inputs([2]), algo(mode, loss), weight_N[2:])
    torch.testing.assert_close(found, expected + own)
    assert torch.equal(cloned.old_logp_NT[2], inputs.old_logp_NT[2])
    clipped = toy.gradient(toy.inputs([0, 1, 2]), algo(mode, loss), weight_N)
    assert not torch.allclose(clipped, found)


def test_old_log_probs_that_are_unknown_on_given_tokens_do_not_matter() -> None:
    """An engine gives NaN there."""
    toy = Toy((5, 3), [2.0, 1.0])
    weight_N = row_weights("token_mean", torch.tensor(toy.lengths), max_tokens=8)
    old_NT = toy.inputs([0, 1]).old_logp_NT.clone()
    old_NT[0, :2] = math.nan
    inputs = as_cloning(toy.inputs([0, 1], old_logp_NT=old_NT), torch.tensor([True, False]))
    assert toy.gradient(inputs, algo(), weight_N).isfinite().all()


@pytest.mark.parametrize("mode", ["token_mean", "seq_mean"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_a_given_token_of_weight_0_is_not_there(mode: Aggregate, kl: float) -> None:
    """Two given tokens of weight 0 equal two tokens that are masked; weight 1/2 lies between, the normaliser with it."""
    toy = Toy((5, 3), [2.0, 1.0])
    given_NT = torch.arange(5) < torch.tensor([2, 0])[:, None]

    def gradient(prefix_weight: float) -> torch.Tensor:
        weight_NT = torch.where(given_NT, prefix_weight, 1.0).double()
        lengths_N = (toy.mask_NT * weight_NT).sum(1)
        weight_N = row_weights(mode, lengths_N, max_tokens=8)
        return toy.gradient(toy.inputs([0, 1], weight_NT=weight_NT), algo(mode, kl=kl), weight_N)

    mask_NT = toy.mask_NT & ~given_NT
    masked = toy.gradient(toy.inputs([0, 1], mask_NT=mask_NT), algo(mode, kl=kl), row_weights(mode, mask_NT.sum(1), max_tokens=8))
    torch.testing.assert_close(gradient(0.0), masked)
    whole = toy.gradient(toy.inputs([0, 1]), algo(mode, kl=kl), row_weights(mode, toy.mask_NT.sum(1), max_tokens=8))
    torch.testing.assert_close(gradient(1.0), whole)
    if mode == "token_mean":  # sum_w / n_w: linear in numerator and normaliser
        torch.testing.assert_close(gradient(0.5) * 7, (masked * 6 + whole * 8) / 2)
