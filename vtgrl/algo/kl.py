"""Estimators of KL(policy || reference) from one sampled token: value and gradient are finite at any log-ratio.

With d = log pi(y) - log ref(y) and y drawn from pi (Schulman, "Approximating KL divergence", joschu.net/blog/kl-approx.html):

    k1 = d                      E[k1] = KL.       As a loss its expected gradient is 0: use it in the reward.
    k2 = d^2 / 2                biased value.     As a loss its expected gradient is exactly that of KL(pi || ref).
    k3 = exp(-d) - 1 + d        E[k3] = KL.       As a loss its expected gradient is that of KL(ref || pi).

Safety: the sums are made in at least float32. |d| is cut at 1e4 (gradient 0 beyond; covers an infinite d). exp(-d) goes on as its
tangent where -d > 10, so the largest slope is exp(10) = 22,026, which even float16 can hold. Clamping the *output* instead would leave
a gradient of 0 x inf = NaN (OpenRLHF PR#1335, trl#3015). Below -d = 10 nothing is changed.

Shape legend: N rows, T steps.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

KlKind = Literal["k1", "k2", "k3"]

LARGEST_LOG_RATIO = 1e4
LINEAR_FROM = 10.0


def kl_NT(logp_NT: torch.Tensor, ref_logp_NT: torch.Tensor, kind: KlKind) -> torch.Tensor:
    """The estimator per token, float32 or wider. Differentiable in both arguments; shapes broadcast."""
    dtype = torch.promote_types(torch.promote_types(logp_NT.dtype, ref_logp_NT.dtype), torch.float32)
    d_NT = (logp_NT.to(dtype) - ref_logp_NT.to(dtype)).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    if kind == "k1":
        return d_NT
    if kind == "k2":
        return d_NT.square() / 2
    return _exp_tangent(-d_NT) - 1 + d_NT


def _exp_tangent(x: torch.Tensor) -> torch.Tensor:
    """exp(x), continued by its tangent beyond LINEAR_FROM. Neither branch overflows, so the gradient of `where` is finite."""
    tangent = math.exp(LINEAR_FROM) * (1 + x - LINEAR_FROM)
    return torch.where(x > LINEAR_FROM, tangent, x.clamp(max=LINEAR_FROM).exp())
