"""A decoded clip and the rule that chose its frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FramePolicy:
    """Which frames, how large. `unit` is patch size x merge size: frame sides are multiples of it (28 or 32)."""

    fps: float
    min_frames: int
    max_frames: int
    min_pixels: int
    max_pixels: int
    total_pixels: int
    unit: int


@dataclass(frozen=True, eq=False)
class Clip:
    """Frames of one cut clip, already resized.

    frames_THWC: uint8. times: true presentation time of each frame in seconds after the cut's start, len T, strictly
    increasing (a one-frame clip is repeated to an even count by the reader and says so in `repeated`). `fps`: the rate at
    which the frames were really sampled, (T - 1) / (times[-1] - times[0]). `duration`: length of the cut clip in seconds.
    `id`: digest of file identity (path, size, mtime), cut and policy; equal ids mean equal frames. `notes`: what the
    reader had to put up with (a frame or two fewer than the header promises, a cut that reaches past the end, ...).
    """

    id: str
    frames_THWC: np.ndarray
    times: tuple[float, ...]
    fps: float
    duration: float
    source_fps: float
    repeated: int = 0
    notes: tuple[str, ...] = ()
