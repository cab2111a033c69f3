"""A clip with other frames at the same places: the same numbers as encoding the changed clip anew, for a part of the work."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from policy_kit import VLMS, Kit, alone, answers

from vtgrl.model.families.base import VisionOutput
from vtgrl.model.policy import Policy
from vtgrl.model.slices import Variant
from vtgrl.model.types import Medium, PackedGroup, Prompt

MOVED = (4, 5, 0, 1, 2, 3, 6, 7)
"""Whole slices change places."""
MIXED = (0, 1, 4, 2, 3, 5, 7, 6)
"""Slice 0 stays, slices 1 and 2 are new mixtures, slice 3 shows its two frames the other way round."""


@pytest.fixture(params=VLMS)
def it(tiny_dir: Callable[[str], Path], request: pytest.FixtureRequest) -> Kit:
    return Kit(tiny_dir(request.param), request.param)


def true_clip(kit: Kit, variant: Variant) -> Medium:
    """The changed clip as if it had been decoded like that: the processor sees its frames."""
    pixels, grid, seconds = kit.family.clip_inputs(kit.processor, variant.frames_THWC, variant.metadata)
    assert (grid, seconds) == (variant.grid_thw, variant.seconds_per_grid)
    return replace(variant.base, id=f"true {variant.id}", frames_THWC=variant.frames_THWC, pixel_values=pixels)


def embeddings(policy: Policy, *media: Medium | Variant) -> list[torch.Tensor]:
    """Embeddings and deepstack layers of all media together."""
    with torch.no_grad():
        found, _ = policy.vision.run(media)
    assert isinstance(found, VisionOutput)
    return [found.embeds_VD, *found.deepstack]


def with_medium(prompt: Prompt, medium: Medium | Variant) -> Prompt:
    return replace(prompt, media=(medium,))


@pytest.mark.parametrize(
    ("order", "sources", "dirty"),
    [
        (tuple(range(8)), (0, 1, 2, 3), ()),
        (MOVED, (2, 0, 1, 3), ()),
        (MIXED, (0, None, None, None), (1, 2, 3)),
        ((6, 7, 2, 3, 6, 7, 0, 2), (3, 1, 3, None), (3,)),  # a frame may be shown twice, or not at all
    ],
)
def test_a_moved_slice_is_known_and_a_changed_one_dirty(
    tiny_dir: Callable[[str], Path], order: tuple[int, ...], sources: tuple[int | None, ...], dirty: tuple[int, ...]
) -> None:
    base = Kit(tiny_dir("qwen2_5_vl"), "qwen2_5_vl").medium(1, frames=8)
    variant = Variant("v", base, order)
    assert (variant.sources, variant.dirty) == (sources, dirty)
    assert variant.dirty_pixels().grid_thw[0] == len(dirty)


def test_pixel_rows_are_the_processors_for_the_changed_clip(it: Kit) -> None:
    variant = Variant("v", it.medium(1, frames=8, side=3), MIXED)
    true = true_clip(it, variant)
    assert torch.equal(variant.pixel_values, true.pixel_values)
    rows = true.pixel_values.view(4, -1, true.pixel_values.shape[-1])
    assert torch.equal(variant.dirty_pixels().pixel_values, rows[1:].flatten(0, 1))


@pytest.mark.parametrize("side", [2, 5])  # 5: four windows of unequal size in Qwen2.5-VL, interpolated positions in Qwen3-VL
@pytest.mark.parametrize("order", [MOVED, MIXED])
def test_embeddings_equal_encoding_the_changed_clip(it: Kit, order: tuple[int, ...], side: int) -> None:
    policy = it.policy(frozen=True)
    variant = Variant("v", it.medium(1, frames=8, side=side), order)
    ours = embeddings(policy, it.medium(2), variant, variant.base)
    wanted = embeddings(policy, it.medium(2), true_clip(it, variant), variant.base)
    assert all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
    unchanged = embeddings(policy, it.medium(2), variant.base, variant.base)
    assert not torch.equal(ours[0], unchanged[0])


def test_random_frame_orders(it: Kit) -> None:
    policy, base, rng = it.policy(frozen=True), it.medium(1, frames=20, side=3), random.Random(0)
    for seed in range(8):
        order = list(range(20))
        first, last = sorted(rng.sample(range(21), 2))
        order[first:last] = rng.sample(order[first:last], last - first)
        variant = Variant(f"v{seed}", base, tuple(order))
        pairs = zip(embeddings(policy, variant), embeddings(policy, true_clip(it, variant)), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_only_dirty_slices_go_through_the_tower(it: Kit) -> None:
    policy, base = it.policy(frozen=True), it.medium(1, frames=8)
    vision = policy.vision
    embeddings(policy, Variant("a", base, MIXED))
    assert (vision.calls, vision.slices) == (1, 4 + 3)  # the true clip was not known yet: one call for both
    embeddings(policy, Variant("b", base, MIXED), Variant("c", base, MIXED), Variant("d", base, MOVED), base)
    assert (vision.calls, vision.slices) == (2, 7 + 6)
    embeddings(policy, Variant("d", base, MOVED), base)
    assert (vision.calls, vision.slices) == (2, 13)
    assert len(vision.cache) == 1, "changed clips are used once: they would push true ones out"


def test_a_clip_that_the_cache_cannot_hold_is_encoded_again(it: Kit) -> None:
    policy = it.policy(frozen=True)
    policy.vision.cache.limit = 0
    variant = Variant("v", it.medium(1, frames=8), MIXED)
    assert torch.equal(embeddings(policy, variant)[0], embeddings(policy, true_clip(it, variant))[0])
    embeddings(policy, variant)
    assert (policy.vision.calls, policy.vision.slices) == (3, 7 + 4 + 7)


def test_a_trained_tower_encodes_the_changed_clip(it: Kit) -> None:
    policy = it.policy()
    variant = Variant("v", it.medium(1, frames=8), MIXED)
    assert torch.equal(embeddings(policy, variant)[0], embeddings(policy, true_clip(it, variant))[0])
    assert len(policy.vision.cache) == 0


@pytest.mark.parametrize("frozen", [True, False])
def test_packed_log_probs_equal_one_by_one_scoring_of_the_changed_clip(it: Kit, frozen: bool) -> None:
    """A row with the true clip, its variant and a second variant of it: three groups that must not see each other's pixels."""
    policy = it.policy(frozen=frozen)
    prompt = it.prompt("When?", [it.medium(1, frames=8)])
    base = prompt.media[0]
    assert isinstance(base, Medium)
    variants = [Variant("moved", base, MOVED), Variant("mixed", base, MIXED)]
    told = answers((5, 1, 9))
    row = tuple(PackedGroup(with_medium(prompt, m), told) for m in (variants[0], base, variants[1]))
    true = [PackedGroup(with_medium(prompt, m), told) for m in (true_clip(it, variants[0]), base, true_clip(it, variants[1]))]
    with torch.no_grad():
        found = policy(row).logp_R
    assert (found - alone(policy, true)).abs().max() <= 2e-5
    thirds = found.view(3, -1)
    assert (thirds[0] - thirds[1]).abs().max() > 1e-4
    assert (thirds[2] - thirds[1]).abs().max() > 1e-4
