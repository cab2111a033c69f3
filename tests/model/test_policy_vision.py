"""Each video is seen once: per row, and across passes while the tower is frozen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from policy_kit import VLMS, Kit, alone, answers, gradients, group

from vtgrl.model.families.base import VisionOutput
from vtgrl.model.types import PackedGroup
from vtgrl.model.vision import EmbeddingCache


@pytest.fixture
def it(tiny_dir: Callable[[str], Path]) -> Kit:
    return Kit(tiny_dir("qwen3_vl"), "qwen3_vl")


@pytest.mark.parametrize("name", VLMS)
def test_one_tower_call_on_unique_media(tiny_dir: Callable[[str], Path], name: str) -> None:
    """Three groups, two clips, one shown by two groups: the tower sees the patches of two clips, in one call."""
    kit = Kit(tiny_dir(name), name)
    policy = kit.policy()
    first, second = group(kit, (2,) * 8, seed=1), group(kit, (3,), seed=2)
    again = PackedGroup(kit.prompt("Again?", first.prompt.media), answers((2, 2)))
    seen: list[int] = []
    policy.hf.model.visual.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[0]))
    policy((first, second, again))
    assert seen == [sum(len(m.pixel_values) for g in (first, second) for m in g.prompt.media)]


def test_a_frozen_tower_runs_once_and_leaves_no_graph(it: Kit) -> None:
    policy = it.policy(frozen=True).train()
    row = (group(it, (3, 2), seed=1),)
    first = policy(row).logp_R
    first.sum().backward()
    assert not any(".visual." in n for n in gradients(policy))
    with torch.no_grad():
        assert torch.equal(policy(row).logp_R, first)
        policy(row, entropy=True)
        assert policy.vision.calls == 1
        policy((*row, group(it, (2,), seed=2)))
    assert policy.vision.calls == 2


def test_a_trained_tower_is_never_cached(it: Kit) -> None:
    policy = it.policy()
    row = (group(it, (3,), seed=1),)
    policy(row), policy(row)
    assert policy.vision.calls == 2


def test_changed_tower_weights_empty_the_cache(it: Kit) -> None:
    policy = it.policy(frozen=True)
    row = (group(it, (3,), seed=1),)
    with torch.no_grad():
        before = policy(row).logp_R
        policy.hf.model.visual.merger.linear_fc2.weight.mul_(3.0)
        after = policy(row).logp_R
        assert (after - alone(policy, row)).abs().max() <= 2e-5
        assert (after - before).abs().max() > 1e-4
        policy.hf.model.visual.merger.linear_fc2.weight.data.div_(3.0)
        policy.invalidate()
        assert (policy(row).logp_R - before).abs().max() <= 2e-5
    assert policy.vision.calls == 3


def test_text_rows_do_not_run_a_frozen_tower_that_is_not_sharded(it: Kit) -> None:
    policy = it.policy(frozen=True)
    policy((PackedGroup(it.prompt("What is two plus two?"), answers((3,))),))
    assert policy.vision.calls == 0


def test_the_cache_is_bounded_and_drops_the_longest_unused() -> None:
    def item(rows: int) -> VisionOutput:
        return VisionOutput(torch.zeros(rows, 5), (torch.zeros(rows, 5),))  # 40 bytes a row

    cache = EmbeddingCache(400)
    cache.put("a", item(4))
    cache.put("b", item(4))
    cache.get("a")
    cache.put("c", item(4))
    assert ("a" in cache, "b" in cache, "c" in cache, cache.bytes) == (True, False, True, 320)
    cache.put("huge", item(11))
    assert ("huge" in cache, len(cache)) == (False, 2)
    cache.match("other weights")
    assert (len(cache), cache.bytes) == (0, 0)
