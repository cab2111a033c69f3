"""The clip that the page opens with: generated, so its truth is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from vtgrl.core.types import Window
from vtgrl.data.world import make_world

SIDE = 224
"""Pixels of the square frames, unless video.max_pixels is less."""
SEED = 3
"""Of a clip with a shape in its first frame: a player that opens with an empty one looks broken."""
FILE = "vtgrl_example.mp4"


@dataclass(frozen=True, slots=True)
class Example:
    """A generated clip of 8 seconds, a question and the window that answers it."""

    clip: Path
    query: str
    window: Window

    def truth_of(self, clip: Path, query: str) -> Window | None:
        """The true window when this very question is asked about this clip (or the page's copy of it)."""
        return self.window if clip.name == FILE and query.strip() == self.query else None


def make_example(folder: Path, *, max_pixels: int = 0) -> Example:
    """Write the clip into `folder`. It is no larger than the model's frames (`max_pixels`, 0: no limit), and never below 56 pixels."""
    side = min(SIDE, max(56, math.isqrt(max_pixels) // 2 * 2)) if max_pixels else SIDE
    [sample] = make_world(folder, n=1, seed=SEED, size=side, val_every=0)
    assert sample.video is not None
    clip = folder / FILE
    Path(sample.video.path).rename(clip)
    return Example(clip, sample.query, sample.windows[0])
