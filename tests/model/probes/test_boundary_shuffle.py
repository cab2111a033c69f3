"""What is shuffled, checked on plans alone: no model, no pixels but the frames' numbers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from vtgrl.core.registry import get
from vtgrl.core.types import Sample, Window
from vtgrl.model.probes._boundaries import Radius, clip_windows, shuffle, zones
from vtgrl.model.probes.boundary_shuffle import BoundaryShuffleConfig, frame_orders
from vtgrl.model.probes.types import Probed
from vtgrl.model.slices import Variant
from vtgrl.model.types import Medium, Prompt

Order = tuple[int, ...]


def clip(frames: int, *, spacing: float = 0.5, odd: bool = False) -> Medium:
    """One pixel a frame, its value the frame's number; `odd`: the last frame is there twice, as `make_medium` does it."""
    times = [j * spacing for j in range(frames)]
    numbers = [*range(frames), frames - 1] if odd else list(range(frames))
    times += times[-1:] * odd
    pixels = np.array(numbers, dtype=np.int64)[:, None, None, None]
    meta = {"fps": 1.0, "frames_indices": times, "duration": frames * spacing}
    slices = len(numbers) // 2
    return Medium("clip", pixels, meta, torch.from_numpy(pixels).view(slices, 2), (slices, 1, 1), 2 * spacing)


def prompt(medium: Medium | None, *windows: Window) -> Prompt:
    sample = Sample(id="a", task="vtg", query="he eats", windows=windows)
    media = () if medium is None else (medium,)
    duration = medium.metadata["duration"] if medium is not None else 0.0
    return Prompt(sample, "", (1,), media, torch.zeros(0), torch.zeros(3, 1), 1, duration)


def probe(medium: Medium | None, *windows: Window, seed: int = 0, **config: Any) -> Probed:
    entry = get("probe", "boundary_shuffle")
    found: Probed = entry.fn(prompt(medium, *windows), config=entry.config(**config), seed=seed)
    return found


def orders(found: Probed) -> list[Order]:
    variants = [p.media[0] for p in found.prompts]
    assert all(isinstance(v, Variant) for v in variants)
    return [v.order for v in variants if isinstance(v, Variant)]


def order(*args: Any, **kwargs: Any) -> Order:
    (only,) = orders(probe(*args, **kwargs))
    return only


def moved(order: Order) -> set[int]:
    return {place for place, frame in enumerate(order) if place != frame}


def zone(start: int, end: int) -> set[int]:
    return set(range(start, end))


def test_frames_of_both_boundaries_stay_near_them() -> None:
    """60 frames at 2 fps, event 8 to 20 s, 3 s: 13 frames around each boundary, as in the release; all others stay."""
    shown = order(clip(60), (8.0, 20.0))
    assert moved(shown) <= zone(10, 23) | zone(34, 47)
    assert len(moved(shown)) > 15
    assert sorted(shown[10:23]) == list(range(10, 23))
    assert sorted(shown[34:47]) == list(range(34, 47))


def test_one_clip_a_prompt_and_seed() -> None:
    """T3: equal answers score equally, on every rank."""
    assert order(clip(60), (8.0, 20.0), seed=4) == order(clip(60), (8.0, 20.0), seed=4)
    assert order(clip(60), (8.0, 20.0), seed=4) != order(clip(60), (8.0, 20.0), seed=5)
    ids = {probe(clip(60), (8.0, 20.0), seed=s).prompts[0].media[0].id for s in (4, 4, 5)}
    assert len(ids) == 2


def test_the_radius_shrinks_to_the_event() -> None:
    """T4: windows of 3 s around [10, 12] would overlap; 1 s leaves [9, 11) and (11, 13], apart."""
    times = [j / 2 for j in range(60)]
    assert zones(times, [(10.0, 12.0)], radius=Radius(3.0, patch=1.0)) == [(18, 23), (23, 27)]
    assert zones(times, [(10.0, 15.0)], radius=Radius(3.0, patch=1.0)) == [(15, 26), (26, 36)]
    assert zones(times, [(10.0, 16.0)], radius=Radius(3.0, patch=1.0)) == [(14, 27), (27, 39)]
    assert zones(times, [(10.0, 18.0)], radius=Radius(3.0, patch=1.0)) == [(14, 27), (30, 43)]


def test_a_very_short_event_gets_one_patch() -> None:
    times = [j / 2 for j in range(60)]
    assert zones(times, [(10.0, 10.2)], radius=Radius(3.0, patch=1.0)) == [(18, 21), (21, 23)]
    assert zones(times, [(10.0, 10.0)], radius=Radius(3.0, patch=1.0)) == [(18, 23)]


def test_the_event_and_the_radius_are_cut_to_the_clip() -> None:
    """T4: GT [120, 14220] in a clip of 157.8 s; an end at the clip's end is shuffled inside the clip."""
    assert clip_windows([(120.0, 14220.0), (-3.0, 2.0), (160.0, 170.0), (-5.0, 0.0)], duration=157.8) == [(120.0, 157.8), (0.0, 2.0)]
    shown = order(clip(316), (120.0, 14220.0))
    assert moved(shown) <= zone(234, 247) | zone(309, 316)
    assert moved(shown) & zone(309, 316)
    assert moved(order(clip(60), (0.0, 30.0))) <= zone(0, 7) | zone(54, 60)


def test_sparse_frames_still_give_the_two_frames_beside_a_boundary() -> None:
    """T4: an hour in 768 frames, 4.7 s apart: no window of 6 s holds two, so the frames before and after change places."""
    shown = order(clip(768, spacing=4.7), (1000.0, 1030.0))
    assert moved(shown) == {212, 213, 219, 220}
    assert (shown[212], shown[213]) == (213, 212)


@pytest.mark.parametrize("granularity", ["frame", "patch"])
def test_never_the_identity(granularity: str) -> None:
    """T5: a window of two has only one other order."""
    for seed in range(50):
        shown = order(clip(4 if granularity == "patch" else 2), (0.5, 0.6), seed=seed, granularity=granularity)
        assert shown == ((2, 3, 0, 1) if granularity == "patch" else (1, 0))


def test_every_zone_changes_and_every_order_is_as_likely() -> None:
    counts = Counter(shuffle(7, [(0, 3), (4, 6)], seed=seed) for seed in range(2000))
    assert len(counts) == 5  # 3! - 1 orders of the first zone, one of the second
    assert all(found[3] == 3 and found[6] == 6 and found[4:6] == (5, 4) for found in counts)
    assert min(counts.values()) > 300


def test_patches_move_whole() -> None:
    """T6: no temporal patch blends two instants, and the tower has nothing to do."""
    found = probe(clip(60), (8.0, 20.0), granularity="patch")
    variant = found.prompts[0].media[0]
    assert isinstance(variant, Variant)
    assert variant.dirty == ()
    assert all((a % 2, b) == (0, a + 1) for a, b in zip(variant.order[::2], variant.order[1::2], strict=True))
    assert moved(variant.order)
    mixed = probe(clip(60), (8.0, 20.0), granularity="frame").prompts[0].media[0]
    assert isinstance(mixed, Variant)
    assert mixed.dirty


def test_a_frame_that_is_there_twice_is_one_frame() -> None:
    """Nine frames and the last once more: its two places always show the same frame, and swapping them is no change."""
    for seed in range(20):
        shown = order(clip(9, odd=True), (2.0, 4.0), seed=seed)
        assert len(shown) == 10
        assert shown[8] == shown[9] or {shown[8], shown[9]} == {8, 9}
    assert probe(clip(1, odd=True), (0.0, 1.0)).skipped == "too_few_frames"


@pytest.mark.parametrize(
    ("medium", "windows", "why"),
    [
        (None, [(1.0, 2.0)], "no_video"),
        (clip(8), [], "no_window"),
        (clip(8), [(9.0, 12.0)], "outside"),
        (clip(2), [(0.2, 0.8)], "too_few_frames"),
    ],
)
def test_what_cannot_be_shuffled_says_why(medium: Medium | None, windows: list[Window], why: str) -> None:
    found = probe(medium, *windows, granularity="patch")
    assert (found.skipped, found.prompts, found.coverage) == (why, (), 0.0)


def test_several_permutations_and_coverage() -> None:
    found = probe(clip(60), (8.0, 20.0), permutations=4)
    assert len(set(orders(found))) == 4
    assert len({p.media[0].id for p in found.prompts}) == 4
    assert found.coverage == pytest.approx(sum(len(moved(o)) for o in orders(found)) / 4 / 60)
    assert len(orders(probe(clip(2), (0.5, 0.6), permutations=4))) == 1  # there is only one other order


def test_only_the_pixels_change() -> None:
    true = prompt(clip(60), (8.0, 20.0))
    entry = get("probe", "boundary_shuffle")
    shown = entry.fn(true, config=entry.config(), seed=0).prompts[0]
    assert (shown.input_ids, shown.sample, shown.duration) == (true.input_ids, true.sample, true.duration)
    assert shown.positions_3P is true.positions_3P
    assert shown.media[0].metadata == true.media[0].metadata
    assert shown.media[0].frames_THWC.ravel().tolist() == list(shown.media[0].order)


def random_case(rng: random.Random) -> tuple[Medium, list[Window], BoundaryShuffleConfig]:
    frames = rng.choice([2, 3, 4, 7, 16, 60, 200])
    medium = clip(frames, spacing=rng.choice([0.25, 0.5, 1.0, 4.7]), odd=bool(frames % 2))
    duration = medium.metadata["duration"]
    events = [sorted((rng.uniform(-5, duration + 5), rng.uniform(-5, duration + 5))) for _ in range(rng.choice([1, 1, 2, 4]))]
    windows = clip_windows([(a, b) for a, b in events], duration=duration)
    config = BoundaryShuffleConfig(
        radius_s=rng.choice([0.1, 1.0, 3.0, 50.0]), granularity=rng.choice(["frame", "patch"]), permutations=rng.choice([1, 3])
    )
    return medium, windows, config


def test_properties_of_random_plans() -> None:
    rng = random.Random(0)
    shuffled = 0
    for case in range(600):
        medium, windows, config = random_case(rng)
        size = len(medium.frames_THWC)
        found = frame_orders(medium, windows, config=config, seed=case)
        shuffled += bool(found)
        for shown in found:
            assert len(shown) == size
            assert len(moved(shown)) >= 2
            distinct = medium.frames_THWC.ravel()[list(shown)]
            assert set(distinct) == set(medium.frames_THWC.ravel())  # every instant is still there
            _check_distance(medium, windows, config, shown)
            if config.granularity == "patch":
                assert all(b == a + 1 and a % 2 == 0 for a, b in zip(shown[::2], shown[1::2], strict=True))
    assert shuffled > 400


def _check_distance(medium: Medium, windows: list[Window], config: BoundaryShuffleConfig, shown: Order) -> None:
    """A frame that changes is within the radius of a boundary, or beside it."""
    times = medium.metadata["frames_indices"]
    step = medium.seconds_per_grid
    reach = [(b, min(config.radius_s, max(step, (e - s) / 2))) for s, e in windows for b in (s, e)]
    slack = 1.5 * step  # a patch is placed by its middle; the units beside a boundary count whatever the radius
    assert all(any(abs(times[place] - b) <= max(radius, step) + slack for b, radius in reach) for place in moved(shown))


def test_zones_are_apart_and_inside() -> None:
    rng = random.Random(1)
    for _ in range(600):
        medium, windows, config = random_case(rng)
        times = sorted(set(medium.metadata["frames_indices"]))
        found = zones(times, windows, radius=Radius(config.radius_s, medium.seconds_per_grid))
        assert all(a >= 0 and b <= len(times) and b - a >= 2 for a, b in found)
        assert all(a[1] <= b[0] for a, b in pairwise(found))
