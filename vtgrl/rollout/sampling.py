"""From logits to the distribution that is sampled, its log-probs, and a draw. Pure torch, no state.

Shape legend: N rows (answers), V vocabulary. The same rules as vLLM with `processed_logprobs`: temperature, then top-k,
then top-p, then log-softmax in fp32. The log-prob that is reported is that of the distribution which was sampled, so the
ratio to a trainer that scores at the same temperature is 1 (public fault trl#4159: scaling belongs on the logits, before
the softmax; dividing a log-prob by the temperature is not the same thing).
"""

from __future__ import annotations

import torch


def processed_logprobs(logits_NV: torch.Tensor, *, temperature: float, top_p: float = 1.0, top_k: int = -1) -> torch.Tensor:
    """Log-probs [N, V] fp32 of the sampled distribution; tokens cut by top-k or top-p get -inf.

    Temperature 0 is greedy: the log-probs are those of the untempered, uncut distribution, as vLLM reports them.
    Ties with the k-th logit stay in. top_p keeps the smallest set of tokens whose probability reaches `top_p`.
    """
    logits_NV = logits_NV.float()
    if temperature == 0.0:
        return logits_NV.log_softmax(-1)
    logits_NV = logits_NV / temperature
    if 0 < top_k < logits_NV.shape[-1]:
        logits_NV = _cut_top_k(logits_NV, top_k)
    if top_p < 1.0:
        logits_NV = _cut_top_p(logits_NV, top_p)
    return logits_NV.log_softmax(-1)


def _cut_top_k(logits_NV: torch.Tensor, top_k: int) -> torch.Tensor:
    kth_N1 = logits_NV.topk(top_k, dim=-1).values[:, -1:]
    return logits_NV.masked_fill(logits_NV < kth_N1, -torch.inf)


def _cut_top_p(logits_NV: torch.Tensor, top_p: float) -> torch.Tensor:
    sorted_NV, order_NV = logits_NV.sort(dim=-1, descending=False, stable=True)
    # Ascending: drop while the mass so far still leaves more than top_p above it. The most likely token always stays.
    dropped_NV = sorted_NV.softmax(-1).cumsum(-1) <= 1.0 - top_p
    dropped_NV[:, -1] = False
    return logits_NV.masked_fill(torch.zeros_like(dropped_NV).scatter(-1, order_NV, dropped_NV), -torch.inf)


def draw(logp_NV: torch.Tensor, uniform_N: torch.Tensor) -> torch.Tensor:
    """Token ids [N] by inverting each row's cumulative distribution at its own number in [0, 1).

    One number a row and step is all the randomness there is, so a row's draw does not depend on the rows beside it.
    A token of probability 0 is never drawn.
    """
    cdf_NV = logp_NV.double().exp().cumsum(-1)
    target_N1 = uniform_N.double()[:, None] * cdf_NV[:, -1:]
    return torch.searchsorted(cdf_NV, target_N1, right=True)[:, 0]


def greedy(logp_NV: torch.Tensor) -> torch.Tensor:
    """Most likely token ids [N]; the lowest id of a tie."""
    return logp_NV.argmax(-1)


def logprob_of(logp_NV: torch.Tensor, token_N: torch.Tensor) -> torch.Tensor:
    """Log-probs [N] of the chosen tokens."""
    return logp_NV.gather(-1, token_N[:, None])[:, 0]
