"""What the head says of chosen rows, straight from hidden states, without the [R, V] logits in memory.

For R = 2,048 rows and V = 151,936 tokens the logits alone take 1.2 GB in fp32, and a log-softmax with its gradient three
times that. Here rows go through the head in chunks, and the backward pass makes each chunk's logits again.

All statistics of a row are columns of one tensor [R, C]: log-probs of the row's chosen ids (its target, ids that were asked for, its
likeliest ids), then entropy, then the divergence from a second distribution. So ZeRO-3 gathers the weight once a pass, whatever
a loss is made of.

Shape legend: R read rows, c rows of a chunk, D hidden size, V vocabulary, n ids that two vocabularies share, C columns, K chosen ids of
a row, k ids of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from vtgrl.core.errors import ConfigError
from vtgrl.model.divergence import divergence, divergence_gradient
from vtgrl.model.types import Distribution, PolicyOutput, Statistics

CHUNK_ELEMENTS = 2**24
"""Logits alive at a time (64 MB in fp32), of both distributions when there are two."""

NOTHING = Statistics()


def head_output(
    hidden_RD: torch.Tensor,
    *,
    weight_VD: torch.Tensor,
    target_R: torch.Tensor,
    bias_V: torch.Tensor | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
    statistics: Statistics = NOTHING,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> PolicyOutput:
    """log softmax(logits / temperature)[target] of every row, and what else is asked for.

    The matrix product runs in the weights' dtype, everything after it in fp32 (fp64 for fp64 weights). All values carry
    gradients to hidden states, weight and bias; a second distribution gets none.
    """
    args = {"temperature": temperature, "entropy": entropy, "statistics": statistics, "chunk_elements": chunk_elements}
    values_RC, likeliest_Rk = _values(hidden_RD, weight_VD, bias_V, target_R, **args)
    own = Distribution(hidden_RD.detach(), weight_VD.detach(), None if bias_V is None else bias_V.detach(), temperature)
    return read_columns(values_RC, likeliest_Rk, own, entropy=entropy, statistics=statistics)


def logprob_and_entropy(hidden_RD: torch.Tensor, **settings: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Only these two of `head_output`."""
    output = head_output(hidden_RD, **settings)
    return output.logp_R, output.entropy_R


def read_columns(
    values_RC: torch.Tensor, likeliest_Rk: torch.Tensor, own: Distribution, *, entropy: bool, statistics: Statistics
) -> PolicyOutput:
    """Columns by name."""
    asked = 0 if statistics.ids_Rk is None else statistics.ids_Rk.shape[1]
    sizes = [1, asked, statistics.top_k, int(entropy), int(statistics.against is not None)]
    logp_R1, ids_logp_Rk, top_logp_Rk, entropy_R1, divergence_R1 = values_RC.split(sizes, dim=1)
    return PolicyOutput(
        logp_R=logp_R1[:, 0],
        entropy_R=entropy_R1[:, 0] if entropy else None,
        ids_logp_Rk=None if statistics.ids_Rk is None else ids_logp_Rk,
        top_ids_Rk=likeliest_Rk if statistics.top_k else None,
        top_logp_Rk=top_logp_Rk if statistics.top_k else None,
        divergence_R=divergence_R1[:, 0] if statistics.against is not None else None,
        distribution=own if statistics.distribution else None,
    )


def one_row(statistics: Statistics) -> Statistics:
    """The same request for one row that nobody reads: the empty packed row has one inside."""
    ids_Rk, against = statistics.ids_Rk, statistics.against
    return replace(
        statistics,
        ids_Rk=None if ids_Rk is None else ids_Rk.new_zeros(1, ids_Rk.shape[1]),
        mask_Rk=None,
        against=None if against is None else replace(against, hidden_RD=against.hidden_RD.new_zeros(1, against.hidden_RD.shape[1])),
    )


def install_head(head: nn.Module) -> None:
    """Let a plain linear head answer `head(hidden, targets, ...)` with the columns [R, C], the likeliest ids [R, k] and its own weight and
    bias (detached); `head(hidden)` still gives logits.

    The module's own `__call__` stays the way in, so that ZeRO-3 hooks gather the weight, once a pass.

    Raises:
        ConfigError: the head is no plain linear layer (an adapter sits on it, say).
    """
    if type(head) is not nn.Linear:
        raise ConfigError(f"the output head is a {type(head).__name__}, not a plain Linear: leave lm_head out of lora.targets")
    head.forward = MethodType(_head_forward, head)  # type: ignore[method-assign]


def _head_forward(self: nn.Linear, hidden: torch.Tensor, target_R: torch.Tensor | None = None, **settings: Any) -> Any:
    if target_R is None:
        return F.linear(hidden, self.weight, self.bias)
    # detached, the weight outlives what ZeRO-3 does to the parameter when this call ends
    own = self.weight.detach(), None if self.bias is None else self.bias.detach()
    return *_values(hidden, self.weight, self.bias, target_R, **settings), *own


def _values(
    hidden_RD: torch.Tensor,
    weight_VD: torch.Tensor,
    bias_V: torch.Tensor | None,
    target_R: torch.Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    statistics: Statistics = NOTHING,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[torch.Tensor, torch.Tensor]:
    request = _Request.of(target_R, statistics, entropy)
    width = weight_VD.shape[0] + (0 if request.against is None else request.against.weight_VD.shape[0])
    values_RC, likeliest_Rk = _LinearStatistics.apply(hidden_RD, weight_VD, bias_V, request, temperature, max(1, chunk_elements // width))
    return values_RC, likeliest_Rk


@dataclass(frozen=True, eq=False)
class _Request:
    """What the columns are. ids_RK: the target, then the ids that were asked for; valid_RK: False where they are padding."""

    ids_RK: torch.Tensor
    valid_RK: torch.Tensor
    top_k: int
    entropy: bool
    against: Distribution | None
    beta: float

    @classmethod
    def of(cls, target_R: torch.Tensor, wanted: Statistics, entropy: bool) -> _Request:
        ids_RK, valid_RK = target_R[:, None], torch.ones_like(target_R, dtype=torch.bool)[:, None]
        if wanted.ids_Rk is not None:
            mask_Rk = torch.ones_like(wanted.ids_Rk, dtype=torch.bool) if wanted.mask_Rk is None else wanted.mask_Rk
            ids_RK = torch.cat([ids_RK, wanted.ids_Rk.masked_fill(~mask_Rk, 0)], dim=1)
            valid_RK = torch.cat([valid_RK, mask_Rk], dim=1)
        against = wanted.against
        assert against is None or len(against.hidden_RD) == len(target_R), "both distributions are read at the same rows"
        return cls(ids_RK, valid_RK, wanted.top_k, entropy, against, wanted.beta)

    @property
    def chosen(self) -> int:
        """K, the likeliest ids too."""
        return self.ids_RK.shape[1] + self.top_k

    @property
    def columns(self) -> int:
        """C."""
        return self.chosen + int(self.entropy) + int(self.against is not None)


def _chunks(rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _scores(hidden_cD: torch.Tensor, weight_VD: torch.Tensor, bias_V: torch.Tensor | None, temperature: float) -> torch.Tensor:
    """Logits of a chunk / temperature, in fp32 or fp64; a tensor of its own that may be changed in place."""
    logits_cV = torch.mm(hidden_cD, weight_VD.t())
    scores_cV = logits_cV if logits_cV.dtype == torch.float64 else logits_cV.float()
    if bias_V is not None:
        scores_cV.add_(bias_V)
    return scores_cV if temperature == 1.0 else scores_cV.div_(temperature)


def _two(logp_cV: torch.Tensor, other: Distribution, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs [c, n] of ours and of the other, each normalised over the ids below both vocabularies' sizes."""
    shared = min(logp_cV.shape[1], len(other.weight_VD))
    bias_n = None if other.bias_V is None else other.bias_V[:shared]
    scores_cn = _scores(other.hidden_RD[rows], other.weight_VD[:shared], bias_n, other.temperature).to(logp_cV.dtype)
    ours_cn = logp_cV if shared == logp_cV.shape[1] else logp_cV[:, :shared].log_softmax(-1)
    return ours_cn, scores_cn.sub_(scores_cn.logsumexp(-1, keepdim=True))


class _LinearStatistics(torch.autograd.Function):
    """Forward keeps each row's log-normaliser and chosen ids; backward makes the logits again, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RD: torch.Tensor,
        weight_VD: torch.Tensor,
        bias_V: torch.Tensor | None,
        request: _Request,
        temperature: float,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows_in_all = len(hidden_RD)
        wide = torch.float64 if hidden_RD.dtype == torch.float64 else torch.float32
        lse_R = hidden_RD.new_empty(rows_in_all, dtype=wide)
        values_RC = hidden_RD.new_empty(rows_in_all, request.columns, dtype=wide)
        likeliest_Rk = request.ids_RK.new_empty(rows_in_all, request.top_k)
        for rows in _chunks(rows_in_all, chunk):
            scores_cV = _scores(hidden_RD[rows], weight_VD, bias_V, temperature)
            lse_R[rows] = scores_cV.logsumexp(-1)
            _fill(values_RC[rows], likeliest_Rk[rows], scores_cV.sub_(lse_R[rows, None]), request, rows)
        ctx.save_for_backward(hidden_RD, weight_VD, bias_V, lse_R, likeliest_Rk, values_RC)
        ctx.request, ctx.temperature, ctx.chunk = request, temperature, chunk
        ctx.mark_non_differentiable(likeliest_Rk)
        return values_RC, likeliest_Rk

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_values_RC: torch.Tensor, _: None) -> tuple[Any, ...]:
        hidden_RD, weight_VD, bias_V, lse_R, likeliest_Rk, values_RC = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden_RD = torch.empty_like(hidden_RD) if need_hidden else None
        # sums over chunks are kept wide: a bf16 weight would lose the small chunks
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=lse_R.dtype) if need_weight else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=lse_R.dtype) if need_bias else None
        for rows in _chunks(len(hidden_RD), ctx.chunk):
            logp_cV = _scores(hidden_RD[rows], weight_VD, bias_V, ctx.temperature).sub_(lse_R[rows, None])
            grad_cV = _score_gradient(logp_cV, ctx.request, rows, likeliest_Rk, values_RC, grad_values_RC).div_(ctx.temperature)
            if grad_bias_V is not None:
                grad_bias_V += grad_cV.sum(0)
            grad_cV = grad_cV.to(weight_VD.dtype)
            if grad_hidden_RD is not None:
                torch.mm(grad_cV, weight_VD, out=grad_hidden_RD[rows])
            if grad_weight_VD is not None:
                _add_product(grad_weight_VD, grad_cV, hidden_RD[rows])
        cast = None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype)
        return grad_hidden_RD, cast, None if grad_bias_V is None else grad_bias_V.to(bias_V.dtype), None, None, None


def _fill(values_cC: torch.Tensor, likeliest_ck: torch.Tensor, logp_cV: torch.Tensor, request: _Request, rows: slice) -> None:
    """Write the columns of a chunk, and its likeliest ids."""
    asked, chosen = request.ids_RK.shape[1], request.chosen
    values_cC[:, :asked] = logp_cV.gather(1, request.ids_RK[rows]) * request.valid_RK[rows]
    if request.top_k:
        values_cC[:, asked:chosen], likeliest_ck[:] = logp_cV.topk(request.top_k, dim=-1)
    if request.entropy:
        values_cC[:, chosen] = -(logp_cV.exp().mul_(logp_cV)).sum(-1)
    if request.against is not None:
        values_cC[:, -1] = divergence(*_two(logp_cV, request.against, rows), beta=request.beta)


def _add_product(total_VD: torch.Tensor, grad_cV: torch.Tensor, hidden_cD: torch.Tensor) -> None:
    """total += grad^T hidden, without a second [V, D] when the dtypes agree."""
    if total_VD.dtype == grad_cV.dtype:
        total_VD.addmm_(grad_cV.t(), hidden_cD)
    else:
        total_VD += torch.mm(grad_cV.t(), hidden_cD)


def _score_gradient(
    logp_cV: torch.Tensor,
    request: _Request,
    rows: slice,
    likeliest_Rk: torch.Tensor,
    values_RC: torch.Tensor,
    grad_values_RC: torch.Tensor,
) -> torch.Tensor:
    """d/d scores of sum_C grad . value, [c, V]. May reuse `logp_cV`.

    Chosen ids with g and entropy H with g_H:  sum_K g_K 1[id_K] - p (sum_K g_K + g_H (log p + H)).
    """
    asked, chosen = request.ids_RK.shape[1], request.chosen
    ids_cK = torch.cat([request.ids_RK[rows], likeliest_Rk[rows]], dim=1)
    grad_cK = grad_values_RC[rows, :chosen].clone()
    grad_cK[:, :asked] *= request.valid_RK[rows]
    total_c1 = grad_cK.sum(1, keepdim=True)
    apart_cn = None
    if request.against is not None:  # before `logp_cV` is reused
        apart_cn = divergence_gradient(*_two(logp_cV, request.against, rows), beta=request.beta).mul_(grad_values_RC[rows, -1:])
    prob_cV = logp_cV.exp()
    if request.entropy:
        entropy_c1, grad_c1 = (x[rows, chosen : chosen + 1] for x in (values_RC, grad_values_RC))
        grad_cV = prob_cV.mul_(logp_cV.add_(entropy_c1).mul_(-grad_c1).sub_(total_c1))
    else:
        grad_cV = prob_cV.mul_(-total_c1)
    grad_cV.scatter_add_(1, ids_cK, grad_cK)
    if apart_cn is not None:
        grad_cV[:, : apart_cn.shape[1]] += apart_cn
    return grad_cV
