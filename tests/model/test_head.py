"""Chunked log-probs against the plain computation: values, gradients, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vtgrl.bench.measure.work import largest_tensor
from vtgrl.core.errors import ConfigError
from vtgrl.model.head import install_head, logprob_and_entropy


def make(rows: int, width: int, vocab: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(s, generator=g, dtype=torch.float64) for s in ((rows, width), (vocab, width), (vocab,)))
    target = torch.randint(0, vocab, (rows,), generator=g)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_(), target


def naive(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = F.linear(hidden, weight, bias)
    logp = (logits if logits.dtype == torch.float64 else logits.float()).div(temperature).log_softmax(-1)
    return logp.gather(1, target[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def grads(loss: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("use_logp", "use_entropy"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_equal_the_naive_ones(with_bias: bool, use_logp: bool, use_entropy: bool, temperature: float) -> None:
    """13 rows in chunks of 4, fp64."""
    hidden, weight, bias, target = make(13, 5, 11)
    inputs = (hidden, weight, *([bias] if with_bias else []))
    weights = torch.linspace(-1, 2, 13, dtype=torch.float64)

    def loss(logp: torch.Tensor, entropy: torch.Tensor | None) -> torch.Tensor:
        total = (logp * weights).sum() if use_logp else torch.zeros((), dtype=torch.float64)
        return total + ((entropy * weights.flip(0)).sum() if use_entropy and entropy is not None else 0)

    ours = logprob_and_entropy(
        hidden,
        weight_VD=weight,
        bias_V=bias if with_bias else None,
        target_R=target,
        temperature=temperature,
        entropy=use_entropy,
        chunk_elements=44,
    )
    wanted = naive(hidden, weight, bias if with_bias else None, target, temperature)
    torch.testing.assert_close(ours[0], wanted[0], rtol=1e-12, atol=1e-12)
    if use_entropy:
        torch.testing.assert_close(ours[1], wanted[1], rtol=1e-12, atol=1e-12)
    else:
        assert ours[1] is None
    for a, b in zip(grads(loss(*ours), *inputs), grads(loss(*wanted), *inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_autograd_agrees_numerically() -> None:
    hidden, weight, bias, target = make(3, 2, 5)

    def both(h: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return logprob_and_entropy(h, weight_VD=w, bias_V=b, target_R=target, temperature=0.7, entropy=True, chunk_elements=10)

    assert torch.autograd.gradcheck(both, (hidden, weight, bias))


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_precision(dtype: torch.dtype, limit: float) -> None:
    """Against fp64 on the same (rounded) weights; results are fp32. Gradients sum over 32 chunks."""
    hidden, weight, _, target = make(64, 32, 128, dtype)
    wide = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    logp, entropy = logprob_and_entropy(hidden, weight_VD=weight, target_R=target, entropy=True, chunk_elements=256)
    wanted = naive(*wide, None, target, 1.0)
    assert entropy is not None
    assert logp.dtype == entropy.dtype == torch.float32
    assert (logp - wanted[0]).abs().max() <= 5 * limit
    assert (entropy - wanted[1]).abs().max() <= 5 * limit
    for a, b in zip(grads((logp + entropy).sum(), hidden, weight), grads((wanted[0] + wanted[1]).sum(), *wide), strict=True):
        assert a.dtype == dtype
        assert (a.double() - b).norm() / b.norm() <= limit


def test_frozen_weight_or_hidden_gets_no_gradient() -> None:
    hidden, weight, _, target = make(4, 3, 7)
    logprob_and_entropy(hidden, weight_VD=weight.detach(), target_R=target)[0].sum().backward()
    assert hidden.grad is not None
    hidden.grad = None
    logprob_and_entropy(hidden.detach(), weight_VD=weight, target_R=target)[0].sum().backward()
    assert weight.grad is not None
    assert hidden.grad is None


def test_temperature_divides_logits_not_log_probs() -> None:
    """Fault 10: five-way logits, T = 0.6, one sampled id: by hand."""
    logits = torch.tensor([1.0, 0.5, -0.3, 2.0, 0.0], dtype=torch.float64)
    scaled = (logits / 0.6).exp()
    by_hand = (scaled[1] / scaled.sum()).log()
    logp, _ = logprob_and_entropy(torch.ones(1, 1).double(), weight_VD=logits[:, None], target_R=torch.tensor([1]), temperature=0.6)
    assert logp.item() == pytest.approx(by_hand.item(), abs=1e-12)
    assert logp.item() != pytest.approx(logits.log_softmax(0)[1].item() / 0.6, abs=1e-2)


def test_no_tensor_as_large_as_the_logits_is_ever_made() -> None:
    rows, width, vocab, chunk = 512, 16, 4096, 2**15
    hidden, weight, _, target = make(rows, width, vocab, torch.float32)

    def work() -> None:
        logp, entropy = logprob_and_entropy(hidden, weight_VD=weight, target_R=target, entropy=True, chunk_elements=chunk)
        assert entropy is not None
        (logp + entropy).sum().backward()

    assert largest_tensor(work) <= max(chunk, vocab * width) < rows * vocab / 8


def test_installed_head_still_gives_logits_and_refuses_adapters() -> None:
    head = nn.Linear(4, 9, bias=False)
    x = torch.randn(2, 3, 4)
    plain = head(x)
    install_head(head)
    assert torch.equal(head(x), plain)
    columns, _, weight, bias = head(x[0], torch.tensor([1, 2, 3]), temperature=1.0)
    torch.testing.assert_close(columns, plain[0].log_softmax(-1)[range(3), [1, 2, 3]][:, None])
    assert bias is None
    assert not weight.requires_grad
    assert torch.equal(weight, head.weight)
    with pytest.raises(ConfigError, match="lm_head"):
        install_head(nn.Sequential(head))
