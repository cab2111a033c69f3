"""How far two next-token distributions are apart, over the whole vocabulary, with its gradient by hand.

Generalised Jensen-Shannon divergence with M = (1 - beta) S + beta T of a student S and another distribution T (a teacher):
beta KL(T || M) + (1 - beta) KL(S || M) in between, and by convention KL(T || S) (forward) at beta = 0, KL(S || T) (reverse) at
beta = 1. arXiv:2306.13649 (GKD).

Shape legend: c rows of a chunk, V ids that both know.
"""

from __future__ import annotations

import math

import torch


def divergence(student_cV: torch.Tensor, other_cV: torch.Tensor, *, beta: float) -> torch.Tensor:
    """[c] of log-probs that are normalised over V."""
    if beta == 0.0:
        return _kl(other_cV, student_cV)
    mixture_cV = _mixture(student_cV, other_cV, beta)
    if beta == 1.0:
        return _kl(student_cV, mixture_cV)
    return beta * _kl(other_cV, mixture_cV) + (1 - beta) * _kl(student_cV, mixture_cV)


def divergence_gradient(student_cV: torch.Tensor, other_cV: torch.Tensor, *, beta: float) -> torch.Tensor:
    """[c, V] by the student's scores (logits / temperature, before they are normalised).

    The terms of M cancel: with d = log S - log M it is (1 - beta) S (d - KL(S || M)), for beta = 1 without the factor.
    """
    if beta == 0.0:
        return student_cV.exp().sub_(other_cV.exp())
    prob_cV = student_cV.exp()
    log_ratio_cV = student_cV - _mixture(student_cV, other_cV, beta)
    log_ratio_cV -= (prob_cV * log_ratio_cV).sum(-1, keepdim=True)
    return prob_cV.mul_(log_ratio_cV).mul_(1.0 if beta == 1.0 else 1 - beta)


def _kl(logp_cV: torch.Tensor, logq_cV: torch.Tensor) -> torch.Tensor:
    """KL(p || q)."""
    return (logp_cV - logq_cV).mul_(logp_cV.exp()).sum(-1)


def _mixture(student_cV: torch.Tensor, other_cV: torch.Tensor, beta: float) -> torch.Tensor:
    """log((1 - beta) S + beta T)."""
    if beta == 1.0:
        return other_cV
    return torch.logaddexp(student_cV + math.log1p(-beta), other_cV + math.log(beta))
