"""Do sampler and trainer agree? The difference of their log-probs of the same tokens, for every step's log."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from vtgrl.core.errors import RunError
from vtgrl.core.types import Completion


def compare(completions: Sequence[Completion], scored: Sequence[torch.Tensor]) -> dict[str, float]:
    """Metrics over all sampled tokens of this rank's answers; `scored[i]` are the trainer's log-probs [R] of `completions[i]`.

    Returns logp_diff_max and logp_diff_mean (absolute, nats), logp_tokens (how many were compared) and logp_missing
    (tokens whose log-prob the sampler could not give; NaN in the completion). Tokens that were given to the answer are neither.
    In fp32 the largest difference is below 1e-5 when both see the same pixels and positions; with top-p or top-k the sampler's
    distribution is another one.

    Raises:
        RunError: an answer was scored at another length than it has.
    """
    differences: list[float] = []
    missing = 0
    for i, (completion, logp_R) in enumerate(zip(completions, scored, strict=True)):
        theirs = logp_R.detach().double().flatten().tolist()
        if len(theirs) != len(completion.logprobs):
            raise RunError(f"answer {i}: the sampler gave {len(completion.logprobs)} tokens, the trainer scored {len(theirs)}")
        sampled = list(zip(completion.logprobs, theirs, strict=True))[completion.given :]
        known = [(a, b) for a, b in sampled if not math.isnan(a)]
        missing += len(sampled) - len(known)
        differences += [abs(a - b) for a, b in known]
    return {
        "rollout/logp_diff_max": max(differences, default=0.0),
        "rollout/logp_diff_mean": math.fsum(differences) / len(differences) if differences else 0.0,
        "rollout/logp_tokens": float(len(differences)),
        "rollout/logp_missing": float(missing),
    }
