"""A film as people make them: a room in front of a camera held by hand, somebody who moves, noise; H.264 as ffmpeg writes it.

At 640x360 and 30 frames a second it has 0.04 bits a pixel and takes 2.7 ns a pixel to decode; three Charades-STA and Time-R1 clips
took 1.5 to 5.0 on the same machine, with a keyframe every 250 frames or at a cut, as here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

CUT_S = 12
"""Seconds from one shot to the next."""
NOISE = 1.5
"""Standard deviation of the sensor's noise, in levels of 255."""


def write_film(path: Path, *, seconds: int, fps: int, width: int, height: int, seed: int = 0) -> Path:
    """An mp4 with the encoder's own settings: keyframes at cuts and every 250 frames, three B-frames in a row."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = 1  # the same bytes on every machine
        for image_HWC in _pictures(seconds=seconds, fps=fps, width=width, height=height, rng=np.random.default_rng(seed)):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image_HWC, format="rgb24")))
        out.mux(stream.encode())
    return path


def _pictures(*, seconds: int, fps: int, width: int, height: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """uint8 [H, W, 3], one shot after the other."""
    noise = [rng.normal(0, NOISE, (height, width, 1)).astype(np.float32) for _ in range(8)]
    for first in range(0, seconds * fps, CUT_S * fps):
        room = _texture(rng, height=height + height // 8, width=width + width // 8)
        person = _texture(rng, height=height // 2, width=width // 6)
        hold, walk, phase = rng.uniform(0.3, 0.9, 2), rng.uniform(0.1, 0.4, 2), rng.uniform(0, 6, 4)
        for i in range(first, min(first + CUT_S * fps, seconds * fps)):
            t = i / fps
            top, left = _sway(t, hold, phase[:2], height // 8, width // 8)
            image = room[top : top + height, left : left + width].copy()
            y, x = _sway(t, walk, phase[2:], height - len(person), width - person.shape[1])
            image[y : y + len(person), x : x + person.shape[1]] = person
            yield (image + noise[i % 8]).clip(0, 255).astype(np.uint8)


def _sway(t: float, speed: np.ndarray, phase: np.ndarray, *reach: int) -> tuple[int, int]:
    """A place that wanders over `reach` pixels each way."""
    down, across = (int(r * (0.5 + 0.5 * np.sin(s * t + p))) for r, s, p in zip(reach, speed, phase, strict=True))
    return down, across


def _texture(rng: np.random.Generator, *, height: int, width: int) -> np.ndarray:
    """Random colours in patches of many sizes, float32 [H, W, 3]."""
    out = np.full((height, width, 3), 128, np.float32)
    for size in (4, 16, 64):
        patches = rng.normal(0, 4 * size**0.4, (height // size + 1, width // size + 1, 3)).astype(np.float32)
        out += patches.repeat(size, 0).repeat(size, 1)[:height, :width]
    return out
