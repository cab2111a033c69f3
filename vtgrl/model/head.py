"""Log-probability and entropy of chosen tokens straight from hidden states, without the [R, V] logits in memory.

For R = 2,048 rows and V = 151,936 tokens the logits alone take 1.2 GB in fp32, and a log-softmax with its gradient three
times that. Here rows go through the head in chunks, and the backward pass makes each chunk's logits again.

Shape legend: R read rows, c rows of a chunk, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from vtgrl.core.errors import ConfigError

CHUNK_ELEMENTS = 2**24
"""Logits alive at a time (64 MB in fp32)."""


def logprob_and_entropy(
    hidden_RD: torch.Tensor,
    *,
    weight_VD: torch.Tensor,
    target_R: torch.Tensor,
    bias_V: torch.Tensor | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """log softmax(logits / temperature)[target] and the entropy of that distribution, each [R].

    The matrix product runs in the weights' dtype, everything after it in fp32 (fp64 for fp64 weights). Both results carry
    gradients to hidden states, weight and bias.
    """
    args = (hidden_RD, weight_VD, bias_V, target_R, temperature, entropy, max(1, chunk_elements // weight_VD.shape[0]))
    logp_R, entropy_R = _LinearLogprob.apply(*args)
    return logp_R, entropy_R if entropy else None


def install_head(head: nn.Module) -> None:
    """Let a plain linear head answer `head(hidden, targets, ...)` with log-probs; `head(hidden)` still gives logits.

    The module's own `__call__` stays the way in, so that ZeRO-3 hooks gather the weight, once a pass.

    Raises:
        ConfigError: the head is no plain linear layer (an adapter sits on it, say).
    """
    if type(head) is not nn.Linear:
        raise ConfigError(f"the output head is a {type(head).__name__}, not a plain Linear: leave lm_head out of lora.targets")
    head.forward = MethodType(_head_forward, head)  # type: ignore[method-assign]


def _head_forward(
    self: nn.Linear, hidden: torch.Tensor, target_R: torch.Tensor | None = None, *, temperature: float = 1.0, entropy: bool = False
) -> Any:
    if target_R is None:
        return F.linear(hidden, self.weight, self.bias)
    return logprob_and_entropy(hidden, weight_VD=self.weight, bias_V=self.bias, target_R=target_R, temperature=temperature, entropy=entropy)


def _chunks(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _scores(hidden_cD: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, temperature: float) -> torch.Tensor:
    """Logits of a chunk / temperature, in fp32 or fp64; a tensor of its own that may be changed in place."""
    logits_cV = torch.mm(hidden_cD, weight_VD.t())
    scores_cV = logits_cV if logits_cV.dtype == torch.float64 else logits_cV.float()
    if bias_V is not None:
        scores_cV.add_(bias_V)
    return scores_cV if temperature == 1.0 else scores_cV.div_(temperature)


class _LinearLogprob(torch.autograd.Function):
    """Forward keeps the log-normaliser and the entropy of each row; backward makes the logits again, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RD: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        target_R: torch.Tensor,
        temperature: float,
        entropy: bool,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        wide = torch.float64 if hidden_RD.dtype == torch.float64 else torch.float32
        logp_R, lse_R, entropy_R = (hidden_RD.new_zeros(hidden_RD.shape[0], dtype=wide) for _ in range(3))
        for rows in _chunks(hidden_RD.shape[0], chunk):
            scores_cV = _scores(hidden_RD[rows], weight_VD, bias_V, temperature)
            lse_R[rows] = scores_cV.logsumexp(-1)
            logp_cV = scores_cV.sub_(lse_R[rows, None])
            logp_R[rows] = logp_cV.gather(1, target_R[rows, None])[:, 0]
            if entropy:
                entropy_R[rows] = -(logp_cV.exp().mul_(logp_cV)).sum(-1)
        ctx.save_for_backward(hidden_RD, weight_VD, bias_V, target_R, lse_R, entropy_R)
        ctx.temperature, ctx.entropy, ctx.chunk = temperature, entropy, chunk
        if not entropy:
            ctx.mark_non_differentiable(entropy_R)
        return logp_R, entropy_R

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_logp_R: torch.Tensor, grad_entropy_R: torch.Tensor) -> tuple[Any, ...]:
        hidden_RD, weight_VD, bias_V, target_R, lse_R, entropy_R = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden_RD = torch.empty_like(hidden_RD) if need_hidden else None
        # sums over chunks are kept wide: a bf16 weight would lose the small chunks
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=lse_R.dtype) if need_weight else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=lse_R.dtype) if need_bias else None
        for rows in _chunks(hidden_RD.shape[0], ctx.chunk):
            logp_cV = _scores(hidden_RD[rows], weight_VD, bias_V, ctx.temperature).sub_(lse_R[rows, None])
            grad_cV = _score_gradient(
                logp_cV,
                target_R[rows],
                grad_logp_R[rows],
                grad_entropy_R[rows] if ctx.entropy else None,
                entropy_R[rows],
            ).div_(ctx.temperature)
            if grad_bias_V is not None:
                grad_bias_V += grad_cV.sum(0)
            grad_cV = grad_cV.to(weight_VD.dtype)
            if grad_hidden_RD is not None:
                torch.mm(grad_cV, weight_VD, out=grad_hidden_RD[rows])
            if grad_weight_VD is not None:
                _add_product(grad_weight_VD, grad_cV, hidden_RD[rows])
        cast = None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype)
        return grad_hidden_RD, cast, None if grad_bias_V is None else grad_bias_V.to(bias_V.dtype), None, None, None, None


def _add_product(total_VD: torch.Tensor, grad_cV: torch.Tensor, hidden_cD: torch.Tensor) -> None:
    """total += grad^T hidden, without a second [V, D] when the dtypes agree."""
    if total_VD.dtype == grad_cV.dtype:
        total_VD.addmm_(grad_cV.t(), hidden_cD)
    else:
        total_VD += torch.mm(grad_cV.t(), hidden_cD)


def _score_gradient(
    logp_cV: torch.Tensor,
    target_c: torch.Tensor,
    grad_logp_c: torch.Tensor,
    grad_entropy_c: torch.Tensor | None,
    entropy_c: torch.Tensor,
) -> torch.Tensor:
    """d/d scores of g . logp[target] + g_H . H:  g (1[target] - p) - g_H p (log p + H). May reuse `logp_cV`."""
    prob_cV = logp_cV.exp()
    if grad_entropy_c is None:
        grad_cV = prob_cV.mul_(-grad_logp_c[:, None])
    else:
        factor_cV = logp_cV.add_(entropy_c[:, None]).mul_(-grad_entropy_c[:, None])
        grad_cV = prob_cV.mul_(factor_cV.sub_(grad_logp_c[:, None]))
    return grad_cV.scatter_add_(1, target_c[:, None], grad_logp_c[:, None])
