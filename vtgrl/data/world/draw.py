"""Script -> frames -> mp4."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import av
import numpy as np

from vtgrl.data.world.script import COLOURS, Actor, Script

DUSK, DAWN = 24, 200
"""Grey of the background at the start and at the end of a clip. It brightens steadily, so that a single frame tells how late it is,
as light, shadows and clocks do in real video: a tiny model learns to answer in seconds within 200 steps instead of 1,000."""
SHAPE_SIDE = 0.36
"""Side of a shape as a share of the frame's side; a quadrant is 0.5."""


def frames(script: Script, *, size: int, fps: int) -> Iterator[np.ndarray]:
    """RGB uint8 [size, size, 3] for every frame; frame k shows the time k / fps."""
    for index in range(round(script.duration * fps)):
        yield draw(script, time=index / fps, size=size)


def draw(script: Script, *, time: float, size: int) -> np.ndarray:
    """The picture at `time` seconds: a shape is there while appears <= time < vanishes."""
    frame_HWC = np.full((size, size, 3), round(DUSK + (DAWN - DUSK) * time / script.duration), np.uint8)
    side = round(size * SHAPE_SIDE)
    for actor in script.actors:
        if actor.visible[0] <= time < actor.visible[1]:
            x, y = _corner(actor, time=time, size=size, side=side)
            frame_HWC[y : y + side, x : x + side][_mask(actor.form, side)] = COLOURS[actor.colour]
    return frame_HWC


def _corner(actor: Actor, *, time: float, size: int, side: int) -> tuple[int, int]:
    """Top left corner of the shape in pixels."""
    done = 0.0
    if actor.moves is not None:
        start, end = actor.moves
        done = min(max((time - start) / (end - start), 0.0), 1.0)
    room, half = size // 2 - side, size // 2
    (x0, y0), (x1, y1) = actor.path
    x, y = x0 + (x1 - x0) * done, y0 + (y1 - y0) * done
    return round(x * room) + half * (actor.quadrant % 2), round(y * room) + half * (actor.quadrant // 2)


@lru_cache(maxsize=64)
def _mask(form: str, side: int) -> np.ndarray:
    """Boolean [side, side] of the pixels that a form covers."""
    y, x = np.mgrid[0:side, 0:side] + 0.5
    if form == "circle":
        return (x - side / 2) ** 2 + (y - side / 2) ** 2 <= (side / 2) ** 2
    if form == "triangle":
        return np.abs(x - side / 2) <= y / 2
    return np.ones((side, side), bool)


def write_mp4(path: Path, script: Script, *, size: int, fps: int) -> None:
    """Encode the script with libx264: one thread and no clock in the file, so equal scripts give equal bytes."""
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = {"preset": "ultrafast", "crf": "16", "g": str(fps), "threads": "1"}
        for image in frames(script, size=size, fps=fps):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
