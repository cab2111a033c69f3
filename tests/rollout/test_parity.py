"""The step's metric of how far sampler and trainer are apart."""

import math

import pytest
import torch

from vtgrl.core.errors import RunError
from vtgrl.core.types import Completion
from vtgrl.rollout.parity import compare


def answer(*logprobs: float) -> Completion:
    return Completion(tuple(range(len(logprobs))), logprobs, "", "stop", 0)


def test_largest_and_mean_difference_over_all_tokens() -> None:
    metrics = compare([answer(-1.0, -2.0), answer(-3.0)], [torch.tensor([-1.5, -2.0]), torch.tensor([-2.75])])
    assert metrics["rollout/logp_diff_max"] == 0.5
    assert metrics["rollout/logp_diff_mean"] == 0.25
    assert metrics["rollout/logp_tokens"] == 3.0
    assert metrics["rollout/logp_missing"] == 0.0


def test_unknown_log_probs_are_counted_not_compared() -> None:
    metrics = compare([answer(-1.0, math.nan)], [torch.tensor([-1.0, -9.0])])
    assert metrics["rollout/logp_diff_max"] == 0.0
    assert metrics["rollout/logp_missing"] == 1.0


def test_no_answers_give_zeros() -> None:
    assert compare([], []) == dict.fromkeys(
        ("rollout/logp_diff_max", "rollout/logp_diff_mean", "rollout/logp_tokens", "rollout/logp_missing"), 0.0
    )


def test_another_length_is_an_error() -> None:
    with pytest.raises(RunError, match="answer 0: the sampler gave 2 tokens, the trainer scored 1"):
        compare([answer(-1.0, -2.0)], [torch.tensor([-1.0])])
