"""The whole objective: one plain sum, whatever the split, the padding, the order or the rank count (public faults 1, 5, 9)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from vtgrl.algo.aggregate import Aggregate, row_weights
from vtgrl.algo.kl import KlKind
from vtgrl.algo.loss.gspo import GspoConfig
from vtgrl.algo.loss.ppo_clip import PpoClipConfig
from vtgrl.algo.masks import completion_mask
from vtgrl.algo.objective import objective
from vtgrl.algo.types import LossInputs
from vtgrl.core.registry import Component, NoConfig
from vtgrl.core.schema import AlgoConfig, KlConfig

MODES: list[Aggregate] = ["token_mean", "seq_mean", "constant"]
MAX_TOKENS = 16
PPO = Component("loss", "ppo_clip", PpoClipConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0))
GSPO = Component("loss", "gspo", GspoConfig(clip_low=0.1, clip_high=0.1))


def algo(loss: Component = PPO, mode: Aggregate = "token_mean", kl: float = 0.1, entropy: float = 0.02) -> AlgoConfig:
    advantage = Component("advantage", "dr_grpo", NoConfig())
    return AlgoConfig(advantage=advantage, loss=loss, kl=KlConfig(coef=kl, kind="k3"), aggregate=mode, entropy_coef=entropy)


class Toy:
    """Four answers of a linear policy: log-probs and entropies of row i, step t come from x_it @ w. Lengths as in public fault 1."""

    def __init__(self, lengths: tuple[int, ...] = (2, 10, 3, 1), seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def rand(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        n, t = len(lengths), max(lengths)
        self.lengths = torch.tensor(lengths)
        self.x_NTD, self.y_N = rand(n, t, 4), torch.randint(0, 5, (n, t), generator=generator)
        self.w_DV = rand(4, 5).requires_grad_()
        self.old_NT, self.ref_NT, self.adv_N = 0.1 * rand(n, t), 0.3 * rand(n, t), rand(n)

    def inputs(self, rows: list[int], *, pad: int = 0) -> LossInputs:
        width = int(self.lengths[rows].max()) + pad
        x, y, old, ref = (
            torch.nn.functional.pad(v, (0, 0) * (v.dim() - 2) + (0, 60)) for v in (self.x_NTD, self.y_N, self.old_NT, self.ref_NT)
        )
        logp_NTV = (x[rows, :width] @ self.w_DV).log_softmax(-1)
        logp_NT = logp_NTV.gather(-1, y[rows, :width].unsqueeze(-1)).squeeze(-1)
        return LossInputs(
            logp_NT,
            (logp_NT + old[rows, :width]).detach(),
            self.adv_N[rows].unsqueeze(1).expand(-1, width),
            torch.arange(width) < self.lengths[rows].unsqueeze(1),
            (logp_NT + ref[rows, :width]).detach(),
            -(logp_NTV.exp() * logp_NTV).sum(-1),
        )

    def gradient(self, config: AlgoConfig, split: list[list[int]], *, pad: int = 0) -> tuple[torch.Tensor, dict[str, float]]:
        """Accumulated over micro-batches, weights from the lengths of all rows of the step."""
        used = [row for part in split for row in part]
        weight_N = torch.zeros(len(self.lengths), dtype=torch.float64)
        weight_N[used] = row_weights(config.aggregate, self.lengths[used], max_tokens=MAX_TOKENS)
        total, sums = torch.zeros_like(self.w_DV), dict[str, float]()
        for part in split:
            loss, found = objective(self.inputs(part, pad=pad), algo=config, weight_N=weight_N[part])
            total += torch.autograd.grad(loss, self.w_DV)[0]
            sums = {key: sums.get(key, 0.0) + value for key, value in found.items()}
        return total, sums


SPLITS = [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]], [[3, 1], [0], [2]], [[2], [3, 0, 1]]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", [PPO, GSPO], ids=["ppo_clip", "gspo"])
def test_public_fault_1_and_5_split_order_and_padding_do_not_matter(mode: Aggregate, loss: Component) -> None:
    toy = Toy()
    base, base_sums = toy.gradient(algo(loss, mode), SPLITS[0])
    assert base.abs().max() > 1e-3
    for split, pad in itertools.product(SPLITS, (0, 50)):
        grad, sums = toy.gradient(algo(loss, mode), split, pad=pad)
        torch.testing.assert_close(grad, base, rtol=0, atol=1e-12)
        assert sums == pytest.approx(base_sums, rel=1e-6)


def test_public_fault_1_two_steps_in_one_generation_window() -> None:
    """Generation window = 2 x accumulation window: every step normalises by its own tokens, not by the window's."""
    toy = Toy((2, 10, 3, 1, 4, 6, 5, 2))
    halves = [[0, 1, 2, 3], [4, 5, 6, 7]]
    for half in halves:
        whole, _ = toy.gradient(algo(), [half])
        split, sums = toy.gradient(algo(), [half[:1], half[1:]])
        torch.testing.assert_close(split, whole, rtol=0, atol=1e-12)
        assert sums["tokens"] == toy.lengths[half].sum()


def test_public_fault_5_each_mode_by_hand() -> None:
    """Rows of 3 and 7 tokens with loss 1 and 2 a token, 20 tokens allowed."""
    lengths = torch.tensor([3, 7])
    per_row = torch.tensor([3 * 1.0, 7 * 2.0], dtype=torch.float64)
    values = {mode: (row_weights(mode, lengths, max_tokens=20) * per_row).sum().item() for mode in MODES}
    assert values == pytest.approx({"token_mean": 17 / 10, "seq_mean": (1 + 2) / 2, "constant": 17 / 40})


def test_rows_that_do_not_train() -> None:
    """A masked answer leaves the token and the row count, but not the constant divisor."""
    with_masked = torch.tensor([3, 0, 7])
    for mode in MODES:
        weight_N = row_weights(mode, with_masked, max_tokens=20)
        assert weight_N.dtype == torch.float64
        assert weight_N[1] == 0
        factor = 2 / 3 if mode == "constant" else 1.0
        torch.testing.assert_close(weight_N[[0, 2]], factor * row_weights(mode, torch.tensor([3, 7]), max_tokens=20))
        assert row_weights(mode, torch.tensor([0, 0]), max_tokens=20).tolist() == [0.0, 0.0]
        assert row_weights(mode, torch.zeros(0, dtype=torch.int64), max_tokens=20).tolist() == []


def test_two_ranks_sum_to_one() -> None:
    """Each rank holds half the rows and the weights of all: the gradients add up (the real 2-rank run is tested in tests/train)."""
    toy = Toy()
    for mode in MODES:
        weight_N = row_weights(mode, toy.lengths, max_tokens=MAX_TOKENS)
        total = torch.zeros_like(toy.w_DV)
        for rank_rows in ([0, 3], [1, 2]):
            loss, _ = objective(toy.inputs(rank_rows), algo=algo(mode=mode), weight_N=weight_N[rank_rows])
            total += torch.autograd.grad(loss, toy.w_DV)[0]
        torch.testing.assert_close(total, toy.gradient(algo(mode=mode), SPLITS[0])[0], rtol=0, atol=1e-12)


def test_public_fault_9_mask_with_pad_equal_to_eos() -> None:
    ids_NT = torch.tensor([[5, 6, 2, 2, 2], [5, 6, 7, 8, 9], [2, 2, 2, 2, 2]])
    mask_NT = completion_mask(ids_NT, {2})
    assert mask_NT.sum(1).tolist() == [3, 5, 1]
    assert mask_NT[0].tolist() == [True, True, True, False, False]
    assert completion_mask(ids_NT, {2, 6}).sum(1).tolist() == [2, 2, 1]
    assert completion_mask(ids_NT[:, :0], {2}).shape == (3, 0)


def test_terms_add_up() -> None:
    toy = Toy()
    weight_N = row_weights("token_mean", toy.lengths, max_tokens=MAX_TOKENS)
    inputs = toy.inputs([0, 1, 2, 3])
    loss, sums = objective(inputs, algo=algo(kl=0.1, entropy=0.02), weight_N=weight_N)
    means = {key: value / sums["tokens"] for key, value in sums.items()}
    assert sums["tokens"] == 16
    assert sums["loss"] == pytest.approx(loss.item(), rel=1e-9)
    assert loss.item() == pytest.approx(means["policy_loss"] + 0.1 * means["kl"] - 0.02 * means["entropy"], rel=1e-5)
    assert {"clip_low", "clip_high", "dual_clip", "ratio", "approx_kl"} <= set(sums)


def test_kl_is_logged_but_not_in_the_loss_when_it_is_in_the_reward() -> None:
    toy = Toy()
    weight_N = row_weights("token_mean", toy.lengths, max_tokens=MAX_TOKENS)
    inputs = toy.inputs([0, 1, 2, 3])
    config = replace(algo(entropy=0.0), kl=KlConfig(coef=0.5, kind="k1", where="reward"))
    loss, sums = objective(inputs, algo=config, weight_N=weight_N)
    assert "kl" in sums
    assert loss.item() == pytest.approx(sums["policy_loss"] / sums["tokens"], rel=1e-5)


def test_missing_passes_are_an_error() -> None:
    inputs = Toy().inputs([0])
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(AssertionError, match="ref_logp_NT"):
        objective(replace(inputs, ref_logp_NT=None), algo=algo(), weight_N=one)
    with pytest.raises(AssertionError, match="entropy_NT"):
        objective(replace(inputs, entropy_NT=None), algo=algo(), weight_N=one)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_junk_in_the_padding_never_reaches_the_gradient(kind: KlKind) -> None:
    junk = torch.tensor([[0.5, math.nan, math.inf, -math.inf]], dtype=torch.float64)
    logp_NT = junk.clone().requires_grad_()
    mask_NT = torch.tensor([[True, False, False, False]])
    inputs = LossInputs(logp_NT, junk, torch.ones_like(junk), mask_NT, torch.where(mask_NT, 1.0, junk), junk)
    config = replace(algo(), kl=KlConfig(coef=0.1, kind=kind))
    loss, sums = objective(inputs, algo=config, weight_N=torch.ones(1, dtype=torch.float64))
    (grad,) = torch.autograd.grad(loss, logp_NT)
    assert math.isfinite(loss.item())
    assert grad[0, 0] != 0
    assert grad[0, 1:].eq(0).all()
    assert all(math.isfinite(value) for value in sums.values())


def test_zero_advantage_rows_give_no_policy_gradient() -> None:
    toy = Toy()
    toy.adv_N = torch.zeros_like(toy.adv_N)
    grad, sums = toy.gradient(algo(kl=0.0, entropy=0.0), SPLITS[1])
    assert grad.eq(0).all()
    assert sums["policy_loss"] == 0.0


def test_gradcheck_of_the_objective() -> None:
    toy = Toy((2, 3))
    base = toy.inputs([0, 1])
    fixed = replace(base, entropy_NT=None)
    weight_N = row_weights("seq_mean", toy.lengths, max_tokens=MAX_TOKENS)

    def value(logp_NT: torch.Tensor) -> torch.Tensor:
        return objective(replace(fixed, logp_NT=logp_NT), algo=algo(entropy=0.0), weight_N=weight_N)[0]

    assert torch.autograd.gradcheck(value, base.logp_NT.detach().requires_grad_())
