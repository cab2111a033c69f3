"""Which frames of a clip the model sees, and how large: the rules of qwen-vl-utils 0.0.14, as pure functions.

`unit` is patch size x merge size of the model (28 for Qwen2(.5)-VL, 32 for Qwen3-VL): both sides of a frame are multiples
of it, and unit^2 pixels are one vision token of a frame. Frames come in pairs: one temporal patch holds two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import VideoConfig
from vtgrl.data.video.types import FramePolicy

FRAME_FACTOR = 2
"""Frames in one temporal patch: frame counts are multiples of it."""
FRAME_TOKENS_MAX = 768
"""Largest frame in merged patches, whatever the budget of the clip allows."""
FRAME_TOKENS_MIN = 4
TOTAL_TOKENS = 3584
MAX_RATIO = 200
"""Longest side / shortest side beyond which a picture is refused."""


@dataclass(frozen=True)
class FramePlan:
    """What to decode: `indices` of the file's frames (increasing), each resized to `height` x `width`.

    `repeats`: how often the last frame is shown again so that the count is even (only for a clip of one frame).
    """

    indices: tuple[int, ...]
    height: int
    width: int
    repeats: int = 0


def resolve_policy(video: VideoConfig, *, unit: int) -> FramePolicy:
    """Fill in the recipe's zeros for a model with this unit: 4, 768 and 3584 merged patches.

    Raises:
        ConfigError: a number that makes no sense, with its key.
    """
    area = unit * unit
    policy = FramePolicy(
        fps=video.fps,
        min_frames=video.min_frames,
        max_frames=video.max_frames,
        min_pixels=video.min_pixels or FRAME_TOKENS_MIN * area,
        max_pixels=video.max_pixels or FRAME_TOKENS_MAX * area,
        total_pixels=video.total_pixels or TOTAL_TOKENS * area,
        unit=unit,
    )
    check_policy(policy)
    return policy


def check_policy(policy: FramePolicy) -> None:
    """ConfigError for the first key that makes no sense."""
    if policy.unit < 1:
        raise ConfigError(f"video: a model with unit {policy.unit} sees no frames; use a model with a vision tower")
    if not (math.isfinite(policy.fps) and policy.fps > 0):
        raise ConfigError(f"video.fps is {policy.fps}: write a positive number of frames a second")
    if policy.max_frames < FRAME_FACTOR:
        raise ConfigError(f"video.max_frames is {policy.max_frames}: at least {FRAME_FACTOR}")
    if not 0 <= policy.min_frames <= policy.max_frames:
        raise ConfigError(f"video.min_frames is {policy.min_frames}: between 0 and video.max_frames ({policy.max_frames})")
    if min(policy.min_pixels, policy.total_pixels) < 1:
        raise ConfigError("video.min_pixels and video.total_pixels are positive, or 0 for the model's default")
    if policy.max_pixels < policy.min_pixels:
        raise ConfigError(f"video.max_pixels ({policy.max_pixels}) is below video.min_pixels ({policy.min_pixels})")


def smart_nframes(seconds: float, *, available: int, fps: float, min_frames: int, max_frames: int) -> int:
    """How many frames to show: seconds x fps within [min, max] and what the clip has, rounded down to even.

    Source: qwen-vl-utils 0.0.14 `smart_nframes`; there, a clip of one frame is an error, here it gives 1.

    Args:
        seconds: length of the cut clip.
        available: frames in the cut clip.

    Example: 10.5 s at 2 fps -> 20; 31 available and 32 wanted -> 30.
    """
    low = math.ceil(min_frames / FRAME_FACTOR) * FRAME_FACTOR
    high = math.floor(max_frames / FRAME_FACTOR) * FRAME_FACTOR
    wanted = min(min(max(seconds * fps, low), high), available)
    return max(math.floor(wanted / FRAME_FACTOR) * FRAME_FACTOR, min(available, FRAME_FACTOR))


def smart_resize(height: int, width: int, *, factor: int, min_pixels: float, max_pixels: float) -> tuple[int, int]:
    """(height, width): multiples of `factor`, area within [min_pixels, max_pixels], aspect ratio as near as that allows.

    Source: qwen-vl-utils 0.0.14 `smart_resize`. Halves round to even, as Python's `round` does.

    Raises:
        ValueError: one side is more than 200 times the other.

    Example: 360 x 640 with factor 28 and no bound -> (364, 644).
    """
    if max(height, width) > MAX_RATIO * min(height, width):
        raise ValueError(f"a frame of {width}x{height} is more than {MAX_RATIO} times longer than wide")
    new_height = max(factor, round(height / factor) * factor)
    new_width = max(factor, round(width / factor) * factor)
    if new_height * new_width > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        # A very long picture could lose its short side; the original then asks for a frame of height 0.
        new_height = max(factor, math.floor(height / beta / factor) * factor)
        new_width = max(factor, math.floor(width / beta / factor) * factor)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * beta / factor) * factor
        new_width = math.ceil(width * beta / factor) * factor
    return new_height, new_width


def frame_pixels(policy: FramePolicy, *, frames: int) -> float:
    """Largest area of one frame when `frames` share the clip's budget (two of them make one temporal patch)."""
    share = min(FRAME_TOKENS_MAX * policy.unit**2, policy.total_pixels / frames * FRAME_FACTOR)
    return min(policy.max_pixels, max(share, int(policy.min_pixels * 1.05)))


def clip_bytes(policy: FramePolicy) -> int:
    """Bytes that the frames of one clip take at most (a rounding of frame sides more or less)."""
    frames = policy.max_frames
    area = min(frames * policy.max_pixels, max(FRAME_FACTOR * policy.total_pixels, frames * int(policy.min_pixels * 1.05)))
    return 3 * area


def spread(first: int, last: int, count: int) -> tuple[int, ...]:
    """`count` indices evenly from `first` to `last`, both shown; halves round to even."""
    return tuple(int(i) for i in np.linspace(first, last, count).round())


def plan_frames(
    times: np.ndarray, *, start: float, end: float, rate: float, height: int, width: int, policy: FramePolicy, where: str
) -> FramePlan:
    """Choose the frames with start <= time <= end.

    As in qwen-vl-utils the frames are even in number, not in time: the same when the frame rate is constant. Their
    length in seconds is counted as frames / rate.

    Args:
        times: [N] seconds of every frame of the file, increasing.
        start, end: the cut.
        rate: frames a second of the file, on average.
        height, width: of the file's upright frames.
        where: the file, for messages.

    Raises:
        DataError: no frame lies in the cut, or the picture is absurdly long.
    """
    noise = 1e-3 / rate
    inside = np.flatnonzero((times >= start - noise) & (times <= end + noise))
    if not len(inside):
        raise DataError(f"{where}: no frame between {start:.3f} s and {end:.3f} s; check the row's video start and end")
    count = smart_nframes(
        len(inside) / rate, available=len(inside), fps=policy.fps, min_frames=policy.min_frames, max_frames=policy.max_frames
    )
    repeats = -count % FRAME_FACTOR
    bound = frame_pixels(policy, frames=count + repeats)
    try:
        size = smart_resize(height, width, factor=policy.unit, min_pixels=policy.min_pixels, max_pixels=bound)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    return FramePlan(spread(int(inside[0]), int(inside[-1]), count), *size, repeats)
