"""Frame counts and sizes, against values worked out by hand from the rules of qwen-vl-utils 0.0.14."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.film import POLICY
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import VideoConfig
from vtgrl.data.video.plan import frame_pixels, plan_frames, resolve_policy, smart_nframes, smart_resize, spread


@pytest.mark.parametrize(
    ("seconds", "available", "fps", "low", "high", "count"),
    [
        (10.0, 300, 2.0, 4, 768, 20),
        (10.5, 315, 2.0, 4, 768, 20),  # 21 -> even
        (1.0, 30, 2.0, 4, 768, 4),  # lifted to the least
        (1.0, 30, 2.0, 5, 768, 6),  # an odd least is lifted to even
        (600.0, 18000, 2.0, 4, 768, 768),
        (600.0, 18000, 2.0, 4, 767, 766),  # an odd most is lowered to even
        (61.0, 1830, 1.0, 4, 16, 16),  # fault 23: fps together with a cap
        (31 / 30, 31, 2.0, 32, 32, 30),  # fault 23: 31 frames, 32 asked
        (0.5, 5, 2.0, 4, 768, 4),  # fault 22
        (0.3, 3, 2.0, 4, 768, 2),
        (0.2, 2, 2.0, 4, 768, 2),
        (0.1, 1, 2.0, 4, 768, 1),
        (4.0, 38, 9.533, 4, 768, 38),
    ],
)
def test_frame_counts(seconds: float, available: int, fps: float, low: int, high: int, count: int) -> None:
    assert smart_nframes(seconds, available=available, fps=fps, min_frames=low, max_frames=high) == count


@pytest.mark.parametrize(
    ("size", "factor", "low", "high", "expected"),
    [
        ((360, 640), 28, 1, 10**9, (364, 644)),
        ((480, 854), 32, 1, 10**9, (480, 864)),
        ((42, 70), 28, 1, 10**9, (56, 56)),  # 1.5 and 2.5 round to even: 2 and 2
        ((10, 10), 28, 1, 10**9, (28, 28)),
        ((1080, 1920), 28, 3136, 602112, (560, 1008)),  # beta = sqrt(2073600 / 602112) = 1.8558
        ((56, 56), 28, 3136, 602112, (56, 56)),
        ((30, 30), 28, 3136, 602112, (56, 56)),  # beta = sqrt(3136 / 900)
        ((240, 320), 28, 3136, 33718, (140, 196)),  # beta = 1.5092; 159.0 -> 140, 212.0 -> 196
        ((30, 4000), 28, 784, 10000, (28, 1148)),  # the short side never vanishes
    ],
)
def test_frame_sizes(size: tuple[int, int], factor: int, low: int, high: int, expected: tuple[int, int]) -> None:
    assert smart_resize(*size, factor=factor, min_pixels=low, max_pixels=high) == expected


def test_absurd_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match="200 times"):
        smart_resize(10, 2010, factor=28, min_pixels=1, max_pixels=10**9)


@pytest.mark.parametrize(
    ("frames", "pixels"),
    [
        (2, 768 * 784),  # the per-frame bound of the library
        (20, 3584 * 784 * 2 / 20),
        (768, 3584 * 784 * 2 / 768),  # 7317.3
        (7168, int(4 * 784 * 1.05)),  # the budget is gone: 5 % above the least
    ],
)
def test_budget_of_a_frame(frames: int, pixels: float) -> None:
    assert frame_pixels(POLICY, frames=frames) == pytest.approx(pixels)


def test_budget_never_exceeds_the_recipes_own_bound() -> None:
    policy = resolve_policy(VideoConfig(max_pixels=3136), unit=28)
    assert frame_pixels(policy, frames=16) == 3136


@pytest.mark.parametrize("unit", [28, 32])
def test_zeros_in_the_recipe_are_the_models_defaults(unit: int) -> None:
    policy = resolve_policy(VideoConfig(), unit=unit)
    assert (policy.min_pixels, policy.max_pixels, policy.total_pixels) == (4 * unit**2, 768 * unit**2, 3584 * unit**2)
    assert resolve_policy(VideoConfig(min_pixels=16 * 784), unit=28).min_pixels == 16 * 784


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("video.fps", VideoConfig(fps=0.0)),
        ("video.fps", VideoConfig(fps=float("nan"))),
        ("video.max_frames", VideoConfig(max_frames=1)),
        ("video.min_frames", VideoConfig(min_frames=10, max_frames=8)),
        ("video.max_pixels", VideoConfig(min_pixels=4000, max_pixels=3000)),
        ("video.total_pixels", VideoConfig(total_pixels=-1)),
    ],
)
def test_senseless_numbers_name_their_key(key: str, config: VideoConfig) -> None:
    with pytest.raises(ConfigError, match=key):
        resolve_policy(config, unit=28)


def test_spread_shows_both_ends() -> None:
    assert spread(0, 334, 70)[:3] == (0, 5, 10)
    assert spread(10, 19, 4) == (10, 13, 16, 19)
    assert spread(0, 5, 3) == (0, 2, 5)  # 2.5 rounds to even


def test_cut_takes_frames_on_its_borders() -> None:
    """7.3 s at 30 fps: frame 219 is shown at exactly 7.3 s, float noise or not."""
    times = np.arange(930) / 30
    plan = plan_frames(times, start=0.1 + 0.2, end=7.3 - 1e-12, rate=30.0, height=270, width=480, policy=POLICY, where="x.mp4")
    assert (plan.indices[0], plan.indices[-1]) == (9, 219)
    assert len(plan.indices) == 14  # 211 frames are 7.03 s
    assert (plan.height, plan.width) == (280, 476)  # 9.6 and 17.1 units; the budget (401,408 a frame) is not reached


def test_cut_without_a_frame_names_the_file() -> None:
    with pytest.raises(DataError, match=r"x\.mp4: no frame between 0\.010 s and 0\.020 s"):
        plan_frames(np.arange(9) / 10, start=0.01, end=0.02, rate=10.0, height=48, width=64, policy=POLICY, where="x.mp4")


def test_one_frame_is_shown_twice() -> None:
    plan = plan_frames(np.zeros(1), start=0, end=0.1, rate=10.0, height=48, width=64, policy=POLICY, where="x.mp4")
    assert (plan.indices, plan.repeats) == ((0,), 1)
