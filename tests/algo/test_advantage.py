"""Advantages against enumeration, by hand, and under what must not matter: order, ids, padding, rows without a reward."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from vtgrl.algo.advantage.dr_grpo import dr_grpo
from vtgrl.algo.advantage.grpo import GrpoConfig, grpo
from vtgrl.algo.advantage.reinforce_pp import ReinforcePpConfig, reinforce_pp
from vtgrl.algo.advantage.rloo import rloo
from vtgrl.algo.types import AdvantageInputs, Advantages
from vtgrl.core.registry import Component, NoConfig, get, names

NAN = math.nan
CASES = [
    Component("advantage", "grpo", GrpoConfig()),
    Component("advantage", "grpo", GrpoConfig(std=False)),
    Component("advantage", "dr_grpo", NoConfig()),
    Component("advantage", "rloo", NoConfig()),
    Component("advantage", "reinforce_pp", ReinforcePpConfig()),
    Component("advantage", "reinforce_pp", ReinforcePpConfig(baseline="group")),
]
GROUP_CASES = CASES[:4]


def inputs(
    rewards: list[float], groups: list[int], *, lengths: list[int] | None = None, steps: list[list[float]] | None = None
) -> AdvantageInputs:
    lengths = lengths or [2] * len(rewards)
    mask_NT = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return AdvantageInputs(
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(groups),
        mask_NT,
        None if steps is None else torch.tensor(steps, dtype=torch.float64),
    )


def per_row(found: Advantages) -> list[float]:
    return found.adv_NT[:, 0].tolist()


def test_grpo_by_hand() -> None:
    given = inputs([1.0, 0.0, 2.0, 0.5, 0.1], [7, 7, 7, 3, 3])
    std = math.sqrt(0.08)
    assert per_row(grpo(given, config=GrpoConfig(eps=1e-4))) == pytest.approx(
        [0, -1 / 1.0001, 1 / 1.0001, 0.2 / (std + 1e-4), -0.2 / (std + 1e-4)]
    )
    assert per_row(grpo(given, config=GrpoConfig(std=False))) == pytest.approx([0, -1, 1, 0.2, -0.2])
    assert per_row(dr_grpo(given, config=NoConfig())) == pytest.approx([0, -1, 1, 0.2, -0.2])
    assert per_row(rloo(given, config=NoConfig())) == pytest.approx([0, -1.5, 1.5, 0.4, -0.4])


def test_reinforce_pp_by_hand() -> None:
    """Two rows of 1 and 3 steps: the batch statistics are over the four steps."""
    found = reinforce_pp(inputs([1.0, 0.0], [0, 1], lengths=[1, 3]), config=ReinforcePpConfig(eps=0.0)).adv_NT
    std = math.sqrt(3) / 4
    assert found.tolist() == [pytest.approx([0.75 / std, 0, 0]), pytest.approx([-0.25 / std] * 3)]
    steps = [[-0.1, 0.0, 0.0], [-0.1, -0.2, -0.3]]
    returns = torch.tensor([0.9, -0.6, -0.5, -0.3], dtype=torch.float64)
    found = reinforce_pp(inputs([1.0, 0.0], [0, 1], lengths=[1, 3], steps=steps), config=ReinforcePpConfig(eps=0.0)).adv_NT
    expected = (returns - returns.mean()) / returns.std(correction=0)
    assert found[0, 0].item() == pytest.approx(expected[0].item())
    assert found[1].tolist() == pytest.approx(expected[1:].tolist())
    base = reinforce_pp(inputs([1.0, 0.0, 5.0], [0, 0, 1], lengths=[1, 1, 2]), config=ReinforcePpConfig(baseline="group", eps=0.0)).adv_NT
    assert base.tolist() == [pytest.approx([math.sqrt(2), 0]), pytest.approx([-math.sqrt(2), 0]), [0.0, 0.0]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_public_fault_3_nothing_to_learn_is_exactly_zero(case: Component) -> None:
    """{1.0}, {0.3, 0.3, 0.3}: exactly 0. {1, NaN, 0}: the others as without the NaN row. {NaN, NaN}: zeros, counted."""
    flat = [inputs([0.3] * 3, [0, 0, 0]), inputs([0.1] * 3, [0] * 3), inputs([NAN, NAN], [0, 0])]
    for given in flat:
        assert case(given).adv_NT.eq(0).all()
    if case in GROUP_CASES:
        assert case(inputs([1.0, 2.0, 5.0], [0, 1, 2])).adv_NT.eq(0).all()
    missing = case(inputs([NAN, NAN, 1.0, 0.0], [0, 0, 1, 1]))
    assert missing.metrics["adv/missing_groups"] == 1.0
    assert missing.metrics["adv/missing_rows"] == 2.0
    assert per_row(missing)[:2] == [0.0, 0.0]
    for bad in (NAN, math.inf, -math.inf):
        with_nan = per_row(case(inputs([1.0, bad, 0.0, 0.2], [0, 0, 0, 0])))
        without = per_row(case(inputs([1.0, 0.0, 0.2], [0, 0, 0])))
        assert with_nan == pytest.approx([without[0], 0.0, *without[1:]])
        assert with_nan[1] == 0.0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_groups_go_by_id_never_by_stride(case: Component) -> None:
    generator = torch.Generator().manual_seed(0)
    rewards = torch.rand(9, generator=generator, dtype=torch.float64).tolist()
    groups, lengths = [5, 5, 5, 5, -2, -2, 40, 40, 40], [1, 2, 3, 4, 5, 4, 3, 2, 1]
    base = case(inputs(rewards, groups, lengths=lengths)).adv_NT
    for seed in range(5):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed)).tolist()
        mixed = case(inputs([rewards[i] for i in order], [groups[i] for i in order], lengths=[lengths[i] for i in order]))
        torch.testing.assert_close(mixed.adv_NT, base[order], rtol=0, atol=1e-12)
    renamed = case(inputs(rewards, [{5: 1, -2: 2, 40: 0}[g] for g in groups], lengths=lengths))
    torch.testing.assert_close(renamed.adv_NT, base, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_padding_and_mask(case: Component) -> None:
    given = inputs([1.0, 0.0, 0.3], [0, 0, 0], lengths=[3, 1, 2], steps=[[-0.1] * 3, [-0.2, 0, 0], [-0.1, -0.1, 0]])
    wide = AdvantageInputs(
        given.reward_N,
        given.group_N,
        torch.nn.functional.pad(given.mask_NT, (0, 50)),
        torch.nn.functional.pad(given.token_reward_NT, (0, 50)),  # type: ignore[arg-type]
    )
    base, padded = case(given).adv_NT, case(wide).adv_NT
    torch.testing.assert_close(padded[:, :3], base, rtol=0, atol=1e-14)
    assert padded[:, 3:].eq(0).all()
    assert base[~given.mask_NT].eq(0).all()
    assert base.dtype == torch.float64


@pytest.mark.parametrize("case", GROUP_CASES, ids=str)
def test_step_rewards_are_summed_into_the_row_before_a_group_baseline(case: Component) -> None:
    steps = [[-0.1, -0.2], [-0.4, 0.0]]
    assert per_row(case(inputs([1.0, 0.0], [0, 0], steps=steps))) == pytest.approx(per_row(case(inputs([0.7, -0.4], [0, 0]))))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_step_reward_costs_its_row_only(case: Component) -> None:
    steps = [[0.0, 0.0], [0.0, NAN], [0.0, 0.0]]
    found = per_row(case(inputs([1.0, 0.5, 0.0], [0, 0, 0], steps=steps)))
    assert found == pytest.approx([-found[2], 0.0, found[2]])
    assert found[0] > 0


@pytest.mark.parametrize("case", CASES, ids=str)
def test_untrained_rows_still_count_in_their_group(case: Component) -> None:
    """A truncated answer that is masked out of the loss stays in its group's statistics."""
    given = inputs([1.0, 0.0, 0.0], [0, 0, 0], lengths=[2, 2, 2])
    masked = AdvantageInputs(given.reward_N, given.group_N, given.mask_NT & torch.tensor([[True], [True], [False]]))
    found = case(masked).adv_NT
    assert found[2].eq(0).all()
    if case in GROUP_CASES:
        torch.testing.assert_close(found[:2], case(given).adv_NT[:2])


def test_empty_batch() -> None:
    given = AdvantageInputs(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 0, dtype=torch.bool))
    for case in CASES:
        assert case(given).adv_NT.shape == (0, 0)


def test_metrics() -> None:
    metrics = grpo(inputs([1.0, 0.0, 0.5, 0.5, NAN, NAN, 2.0], [0, 0, 1, 1, 2, 2, 3]), config=GrpoConfig()).metrics
    assert metrics["adv/groups"] == 4.0
    assert metrics["adv/flat_groups"] == 0.5
    assert metrics["adv/missing_rows"] == 2.0
    assert metrics["adv/missing_groups"] == 1.0
    assert metrics["adv/reward_mean"] == pytest.approx(0.8)
    assert metrics["adv/group_std"] == pytest.approx(math.sqrt(0.5) / 3)


# A softmax bandit: three actions, exact expectations by enumerating every group.
THETA = torch.tensor([0.3, -0.4, 0.8], dtype=torch.float64)
REWARD = torch.tensor([1.0, 0.2, 0.6], dtype=torch.float64)


def _score_functions() -> tuple[torch.Tensor, torch.Tensor]:
    """(probabilities, grad log pi(a) as rows)."""
    p = THETA.softmax(0)
    return p, torch.eye(3, dtype=torch.float64) - p


def _expected_gradient(case: Component, size: int) -> torch.Tensor:
    p, score = _score_functions()
    total = torch.zeros(3, dtype=torch.float64)
    for actions in itertools.product(range(3), repeat=size):
        chosen = list(actions)
        adv_N = case(inputs(REWARD[chosen].tolist(), [0] * size, lengths=[1] * size)).adv_NT[:, 0]
        total += p[chosen].prod() * (adv_N.unsqueeze(1) * score[chosen]).mean(0)
    return total


def _exact_gradient() -> torch.Tensor:
    theta = THETA.clone().requires_grad_()
    (grad,) = torch.autograd.grad((theta.softmax(0) * REWARD).sum(), theta)
    return grad


@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(size: int) -> None:
    torch.testing.assert_close(_expected_gradient(CASES[3], size), _exact_gradient(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_dr_grpo_has_the_known_factor(size: int) -> None:
    """The own reward in the baseline scales the expected gradient by (G - 1) / G."""
    for case in (CASES[1], CASES[2]):
        torch.testing.assert_close(_expected_gradient(case, size), (size - 1) / size * _exact_gradient(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_grpo_equals_its_definition_in_expectation(size: int) -> None:
    p, score = _score_functions()
    expected = torch.zeros(3, dtype=torch.float64)
    for actions in itertools.product(range(3), repeat=size):
        chosen = list(actions)
        r = REWARD[chosen]
        if len(set(r.tolist())) > 1:
            adv = (r - r.mean()) / (r.std() + 1e-6)
            expected += p[chosen].prod() * (adv.unsqueeze(1) * score[chosen]).mean(0)
    torch.testing.assert_close(_expected_gradient(CASES[0], size), expected, rtol=0, atol=1e-12)


def test_reinforce_pp_points_uphill() -> None:
    """One batch of groups, every action as often as the policy draws it: the estimate is the exact gradient over the batch's std."""
    counts = (THETA.softmax(0) * 100000).round().long()
    actions = torch.repeat_interleave(torch.arange(3), counts)
    given = inputs(REWARD[actions].tolist(), list(range(len(actions))), lengths=[1] * len(actions))
    adv_N = reinforce_pp(given, config=ReinforcePpConfig()).adv_NT[:, 0]
    _, score = _score_functions()
    estimate = (adv_N.unsqueeze(1) * score[actions]).mean(0) * REWARD[actions].std(correction=0)
    torch.testing.assert_close(estimate, _exact_gradient(), rtol=0, atol=1e-5)


def test_all_advantages_are_listed() -> None:
    assert {"grpo", "dr_grpo", "rloo", "reinforce_pp"} <= set(names("advantage"))
    for name in ("grpo", "dr_grpo", "rloo", "reinforce_pp"):
        entry = get("advantage", name)
        assert entry.summary
        assert entry.paper.startswith("arXiv:")
