"""KL estimators by enumeration, and safe where exp overflows (public fault 7)."""

from __future__ import annotations

import pytest
import torch

from vtgrl.algo.kl import LINEAR_FROM, KlKind, kl_NT

KINDS: list[KlKind] = ["k1", "k2", "k3"]
THETA = torch.tensor([0.3, -0.4, 0.8], dtype=torch.float64)
REF = torch.tensor([-0.2, 0.5, 0.1], dtype=torch.float64).log_softmax(0)


def _expected(kind: KlKind) -> tuple[torch.Tensor, torch.Tensor]:
    """(E[k], E[grad k]) over y ~ pi: the gradient of a loss term whose samples are fixed."""
    theta = THETA.clone().requires_grad_()
    logp = theta.log_softmax(0)
    p = logp.detach().exp()
    k = kl_NT(logp, REF, kind)
    (grad,) = torch.autograd.grad((p * k).sum(), theta)
    return (p * k.detach()).sum(), grad


def _kl(forward: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(KL(pi || ref), its gradient), or the other direction."""
    theta = THETA.clone().requires_grad_()
    logp = theta.log_softmax(0)
    kl = (REF.exp() * (REF - logp)).sum() if forward else (logp.exp() * (logp - REF)).sum()
    (grad,) = torch.autograd.grad(kl, theta)
    return kl.detach(), grad


def test_values_in_expectation() -> None:
    kl, _ = _kl(forward=False)
    torch.testing.assert_close(_expected("k1")[0], kl)
    torch.testing.assert_close(_expected("k3")[0], kl)
    d = THETA.log_softmax(0) - REF
    torch.testing.assert_close(_expected("k2")[0], (THETA.softmax(0) * d**2 / 2).sum())


def test_gradients_in_expectation() -> None:
    """What the module's docstring says about each kind as a loss."""
    torch.testing.assert_close(_expected("k1")[1], torch.zeros(3, dtype=torch.float64), atol=1e-15, rtol=0)
    torch.testing.assert_close(_expected("k2")[1], _kl(forward=False)[1])
    torch.testing.assert_close(_expected("k3")[1], _kl(forward=True)[1])


def test_k1_in_the_reward_gives_the_true_gradient() -> None:
    """Policy gradient with reward -k1: minus the gradient of KL(pi || ref)."""
    theta = THETA.clone().requires_grad_()
    logp = theta.log_softmax(0)
    reward = -kl_NT(logp.detach(), REF, "k1")
    (grad,) = torch.autograd.grad((logp.detach().exp() * reward * logp).sum(), theta)
    torch.testing.assert_close(-grad, _kl(forward=False)[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("dtype", "gap"),
    [(torch.float32, 100.0), (torch.float16, 12.0), (torch.bfloat16, 100.0), (torch.float32, 1e30), (torch.float32, float("inf"))],
)
def test_value_and_gradient_are_finite(kind: KlKind, dtype: torch.dtype, gap: float) -> None:
    for sign in (1.0, -1.0):
        logp = torch.tensor([-1.0, -1.0], dtype=dtype, requires_grad=True)
        ref = torch.tensor([-1.0 + sign * gap, -1.5], dtype=dtype)
        value = kl_NT(logp, ref, kind)
        (grad,) = torch.autograd.grad(value.sum(), logp)
        assert value.isfinite().all()
        assert grad.isfinite().all()
        assert value.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_differences_are_unchanged(kind: KlKind) -> None:
    logp = torch.linspace(-9.9, 9.9, 199, dtype=torch.float64, requires_grad=True)
    value = kl_NT(logp, torch.zeros(199, dtype=torch.float64), kind)
    d = logp.detach()
    plain = {"k1": d, "k2": d**2 / 2, "k3": torch.exp(-d) - 1 + d}[kind]
    slope = {"k1": torch.ones_like(d), "k2": d, "k3": 1 - torch.exp(-d)}[kind]
    (grad,) = torch.autograd.grad(value.sum(), logp)
    torch.testing.assert_close(value.detach(), plain, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(grad, slope, rtol=1e-14, atol=1e-15)


def test_k3_is_smooth_at_the_joint_and_pulls_back_beyond_it() -> None:
    x = torch.tensor([LINEAR_FROM - 1e-6, LINEAR_FROM + 1e-6, 50.0], dtype=torch.float64)
    logp = (-x).requires_grad_()
    value = kl_NT(logp, torch.zeros(3, dtype=torch.float64), "k3")
    (grad,) = torch.autograd.grad(value.sum(), logp)
    assert value[1].item() == pytest.approx(value[0].item(), rel=1e-5)
    assert grad[1].item() == pytest.approx(grad[0].item(), rel=1e-5)
    assert value[2] > value[1]
    assert grad[2] < -20000  # a clamped output would have no pull left here


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: KlKind) -> None:
    logp = torch.linspace(-14.3, 5.0, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: kl_NT(a, torch.zeros(12, dtype=torch.float64), kind), logp, rtol=1e-4)
