"""Clipped losses: gradient against autograd and by hand, extreme ratios, padding; then KL, weights and the whole objective."""

from __future__ import annotations

import math

import pytest
import torch

from vtgrl.algo.loss.gspo import GspoConfig, gspo
from vtgrl.algo.loss.ppo_clip import PpoClipConfig, ppo_clip
from vtgrl.algo.types import LossInputs
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import Component, get

PPO = Component("loss", "ppo_clip", PpoClipConfig(dual_clip=3.0))
GSPO = Component("loss", "gspo", GspoConfig(clip_low=0.1, clip_high=0.15))


def rows(log_ratio: list[list[float]], adv: list[list[float]], *, dtype: torch.dtype = torch.float64) -> LossInputs:
    """Log-probs of -1 under the old policy; every step is trained."""
    ratio_NT = torch.tensor(log_ratio, dtype=dtype)
    old_NT = torch.full_like(ratio_NT, -1.0)
    logp_NT = (old_NT + ratio_NT).requires_grad_()
    return LossInputs(logp_NT, old_NT, torch.tensor(adv, dtype=dtype), torch.ones_like(ratio_NT, dtype=torch.bool))


def gradient(inputs: LossInputs, loss: Component) -> torch.Tensor:
    (grad,) = torch.autograd.grad(loss(inputs).loss_NT.sum(), inputs.logp_NT)
    return grad


def test_ppo_clip_by_hand() -> None:
    """Ratios 0.5, 1, 1.5, 4 with both signs of the advantage."""
    log_ratio = [math.log(r) for r in (0.5, 1.0, 1.5, 4.0)]
    inputs = rows([log_ratio, log_ratio], [[2.0] * 4, [-2.0] * 4])
    config = PpoClipConfig(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    found = ppo_clip(inputs, config=config)
    assert found.loss_NT[0].tolist() == pytest.approx([-1.0, -2.0, -2.56, -2.56])
    assert found.loss_NT[1].tolist() == pytest.approx([1.6, 2.0, 3.0, 6.0])
    grad = gradient(inputs, Component("loss", "ppo_clip", config))
    assert grad[0].tolist() == pytest.approx([-1.0, -2.0, 0.0, 0.0])
    assert grad[1].tolist() == pytest.approx([0.0, 2.0, 3.0, 0.0])
    assert found.metrics_NT["clip_high"].tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert found.metrics_NT["clip_low"].tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
    assert found.metrics_NT["dual_clip"].tolist() == [[0, 0, 0, 0], [0, 0, 0, 1]]
    assert found.metrics_NT["ratio"][0].tolist() == pytest.approx([0.5, 1.0, 1.5, 4.0])
    assert found.metrics_NT["approx_kl"][0].tolist() == pytest.approx([r - 1 - math.log(r) for r in (0.5, 1.0, 1.5, 4.0)], abs=1e-6)


def test_ppo_clip_without_dual_clip() -> None:
    inputs = rows([[math.log(4.0)]], [[-2.0]])
    found = ppo_clip(inputs, config=PpoClipConfig())
    assert found.loss_NT.item() == pytest.approx(8.0)
    assert "dual_clip" not in found.metrics_NT
    with pytest.raises(ConfigError, match="dual_clip"):
        PpoClipConfig(dual_clip=0.5)


def test_ppo_clip_is_the_published_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    log_ratio = torch.randn(50, 7, generator=generator, dtype=torch.float64).tolist()
    adv_NT = torch.randn(50, 7, generator=generator, dtype=torch.float64)
    inputs = rows(log_ratio, adv_NT.tolist())
    ratio = torch.tensor(log_ratio, dtype=torch.float64).exp()
    surrogate = torch.minimum(ratio * adv_NT, ratio.clamp(0.8, 1.3) * adv_NT)
    expected = -torch.where(adv_NT < 0, torch.maximum(surrogate, 3.0 * adv_NT), surrogate)
    config = PpoClipConfig(clip_low=0.2, clip_high=0.3, dual_clip=3.0)
    torch.testing.assert_close(ppo_clip(inputs, config=config).loss_NT, expected)


def test_on_policy_gradient_is_minus_advantage() -> None:
    """Ratio 1: both losses have the plain policy gradient (GSPO divides it by the length)."""
    adv = [[0.5, 0.5, 0.5], [-2.0, -2.0, -2.0]]
    inputs = rows([[0.0] * 3] * 2, adv)
    torch.testing.assert_close(gradient(inputs, PPO), -inputs.adv_NT)
    torch.testing.assert_close(gradient(inputs, GSPO), -inputs.adv_NT)  # 3 steps x 1/3 each


def test_gspo_by_hand() -> None:
    """One ratio a row: the geometric mean. Rows of 2 and 1 trained steps."""
    inputs = rows([[0.02, 0.06], [0.3, 9.0]], [[1.0, 1.0], [2.0, 2.0]])
    inputs = LossInputs(inputs.logp_NT, inputs.old_logp_NT, inputs.adv_NT, torch.tensor([[True, True], [True, False]]))
    config = GspoConfig(clip_low=0.1, clip_high=0.15)
    found = gspo(inputs, config=config)
    s = math.exp(0.04)
    assert found.loss_NT.tolist() == [pytest.approx([-s, -s]), pytest.approx([-2 * 1.15, 0.0])]
    grad = gradient(inputs, Component("loss", "gspo", config))
    assert grad.tolist() == [pytest.approx([-s, -s]), [0.0, 0.0]]  # d/dlogp of -(s + s) = -2 s / 2
    assert found.metrics_NT["clip_high"].tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize("loss", [PPO, GSPO, Component("loss", "ppo_clip", PpoClipConfig())], ids=str)
def test_gradcheck(loss: Component) -> None:
    generator = torch.Generator().manual_seed(1)
    old_NT = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    logp_NT = old_NT + 0.4 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    adv_NT = torch.randn(6, 1, generator=generator, dtype=torch.float64).expand(6, 5)
    mask_NT = torch.arange(5) < torch.tensor([5, 4, 3, 2, 1, 0]).unsqueeze(1)

    def value(logp_NT: torch.Tensor) -> torch.Tensor:
        return loss(LossInputs(logp_NT, old_NT, adv_NT, mask_NT)).loss_NT

    assert torch.autograd.gradcheck(value, logp_NT.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [PPO, GSPO, Component("loss", "ppo_clip", PpoClipConfig())], ids=str)
def test_extreme_ratios_stay_finite(loss: Component, dtype: torch.dtype) -> None:
    extremes = [[-1e4], [-100.0], [-12.0], [12.0], [100.0], [1e4]]
    for sign in (1.0, -1.0):
        inputs = rows(extremes, [[sign]] * 6, dtype=dtype)
        assert loss(inputs).loss_NT.isfinite().all()
        assert all(values.isfinite().all() for values in loss(inputs).metrics_NT.values())
        assert not gradient(inputs, loss).isnan().any()
        if dtype == torch.float32:
            assert gradient(inputs, loss).isfinite().all()


@pytest.mark.parametrize("loss", [PPO, GSPO], ids=str)
def test_padding_never_matters(loss: Component) -> None:
    """Whatever padding holds (NaN, infinities), value and gradient of real steps do not change and padding gets 0."""
    base = rows([[0.1, -0.2]], [[1.0, 1.0]])
    junk = torch.tensor([[math.nan, math.inf, -math.inf]], dtype=torch.float64)
    logp_NT = torch.cat([base.logp_NT.detach(), junk], 1).requires_grad_()
    wide = LossInputs(
        logp_NT,
        torch.cat([base.old_logp_NT, junk], 1),
        torch.cat([base.adv_NT, torch.ones(1, 3, dtype=torch.float64)], 1),
        torch.tensor([[True, True, False, False, False]]),
    )
    torch.testing.assert_close(loss(wide).loss_NT[:, :2], loss(base).loss_NT)
    torch.testing.assert_close(gradient(wide, loss)[:, :2], gradient(base, loss))
    assert loss(wide).loss_NT[:, 2:].eq(0).all()
    assert gradient(wide, loss)[:, 2:].eq(0).all()
    assert all(values[:, 2:].eq(0).all() for values in loss(wide).metrics_NT.values())


def test_losses_are_listed_with_papers() -> None:
    for name, paper in (("ppo_clip", "arXiv:1707.06347"), ("gspo", "arXiv:2507.18071")):
        assert get("loss", name).paper == paper
        assert get("loss", name).summary
