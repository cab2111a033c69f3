"""What a draw depends on, how long an answer may get, and which weights an engine holds."""

from dataclasses import replace
from itertools import zip_longest

import pytest
import torch

from vtgrl.core.errors import DataError, RunError
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Sample
from vtgrl.model.types import Prompt
from vtgrl.rollout.decode import _uniforms
from vtgrl.rollout.engines.hf import batches
from vtgrl.rollout.held import HeldWeights
from vtgrl.rollout.limits import answer_limit
from vtgrl.rollout.seeds import prompt_seeds


def seeds(*ids: str, run_seed: int = 0, seed: int = 0, copies: tuple[int, ...] = ()) -> list[int]:
    prompts = [prompt_of(1, name=name, copy=copy) for name, copy in zip_longest(ids, copies, fillvalue=0)]
    return prompt_seeds(prompts, run_seed=run_seed, seed=seed)


def test_runs_repeat_and_run_seeds_steps_and_prompts_differ() -> None:
    """Public fault 17."""
    assert seeds("a", "b") == seeds("a", "b")
    assert len({*seeds("a"), *seeds("a", run_seed=1), *seeds("a", seed=1), *seeds("b"), *seeds("a", run_seed=1, seed=1)}) == 5


def test_a_prompts_seed_does_not_depend_on_the_split_over_ranks() -> None:
    together = seeds("a", "b", "c", "d")
    assert [*seeds("a", "c"), *seeds("b", "d")] == [together[0], together[2], together[1], together[3]]


def test_copies_of_a_prompt_in_one_call_draw_differently() -> None:
    first, other, copy = seeds("a", "b", "a")
    assert len({first, other, copy}) == 3
    assert first == seeds("a")[0]


def test_copies_of_a_prompt_on_two_ranks_draw_as_on_one() -> None:
    """Batch a, b, a, a: rank 0 holds the first and the third, rank 1 the second and the fourth."""
    together = seeds("a", "b", "a", "a", copies=(0, 0, 1, 2))
    assert len(set(together)) == 4
    assert together == seeds("a", "b", "a", "a")
    assert [seeds("a", "a", copies=(0, 1)), seeds("b", "a", copies=(0, 2))] == [together[0::2], together[1::2]]


def test_members_have_their_own_numbers_and_longer_answers_the_same_beginning() -> None:
    short, long = _uniforms([5, 90], 3, 8), _uniforms([5, 90], 3, 64)
    assert short.shape == (6, 8)
    assert len({tuple(row) for row in short.tolist()}) == 6
    assert torch.equal(long[:, :8], short)


def prompt_of(length: int, *, name: str = "row7", copy: int = 0) -> Prompt:
    positions, nowhere = torch.arange(length).expand(3, -1), torch.empty(0, dtype=torch.int64)
    return Prompt(Sample(name, "text", "?"), "?", tuple(range(length)), (), nowhere, positions, length, 0.0, copy)


def test_an_answer_gets_what_the_context_leaves() -> None:
    sampling = SamplingConfig(max_tokens=10)
    assert answer_limit(prompt_of(5), sampling=sampling, max_model_len=100) == 10
    assert answer_limit(prompt_of(95), sampling=sampling, max_model_len=100) == 5
    assert answer_limit(prompt_of(99), sampling=replace(sampling, max_tokens=1), max_model_len=100) == 1
    with pytest.raises(DataError, match="row row7: the prompt has 100 tokens"):
        answer_limit(prompt_of(100), sampling=sampling, max_model_len=100)


def test_batches_hold_similar_lengths_and_respect_the_cache() -> None:
    assert batches([10, 500, 12], [40, 40, 40], 2, 300) == [[0, 2], [1]]
    assert batches([], [], 8, 100) == []
    assert batches([50, 50, 50], [10, 10, 10], 5, 200) == [[0, 1], [2]]
    assert batches([1000], [10], 5, 200) == [[0]]  # a group is never split


def test_generating_needs_the_version_that_is_held() -> None:
    held = HeldWeights()
    held.require(0)
    with pytest.raises(RunError, match="version 0, not 3"):
        held.require(3)
    held.published(3)
    held.require(3)


def test_a_deep_sleep_needs_a_publish_a_light_one_does_not() -> None:
    """Public fault 14."""
    held = HeldWeights()
    held.slept(1)
    held.woke()
    held.require(0)
    held.slept(2)
    held.woke()
    with pytest.raises(RunError, match="gone after a deep sleep"):
        held.require(0)
    held.published(0)
    held.require(0)


def test_only_the_policy_that_was_published_whole_can_be_published_in_part() -> None:
    held, policy, other = HeldWeights(), object(), object()
    assert not held.partial(policy)  # the start model's weights are not a resumed policy's
    held.published(1, policy=policy)
    assert held.partial(policy)
    assert not held.partial(other)
    held.slept(1)
    assert held.partial(policy)
    held.slept(2)
    assert not held.partial(policy)
