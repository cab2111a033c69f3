"""A clip with other pixels at the same places: what a probe shows instead of the true clip.

In the towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL attention stays inside one temporal slice, and nothing that a slice's
embeddings depend on counts slices. So a slice that only moved has the embeddings it had, and a slice whose frames changed
(a dirty one) can be encoded alone; both are exact. Its pixel rows are the processor's rows of the frames it shows now: what
the processor makes of a frame does not depend on the frames around it.

Shape legend: t temporal slices, k frames a slice, d dirty slices, p patches a slice, n tokens a slice, C channels,
F features of a patch (C x k x patch^2), D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vtgrl.model.families.base import VisionOutput
from vtgrl.model.types import Medium


@dataclass(frozen=True, eq=False)
class Variant:
    """The clip `base`, frame j of which shows frame `order[j]`. Grid, times and token places are those of `base`.

    It stands wherever a `Medium` does. `id` names base, change and seed: equal ids mean equal pixels.
    """

    id: str
    base: Medium
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        frames = len(self.base.frames_THWC)
        assert len(self.order) == frames, "one frame for every frame of the clip"
        assert all(0 <= j < frames for j in self.order), "frames of the clip"

    @property
    def grid_thw(self) -> tuple[int, int, int]:
        """Patches before the merge."""
        return self.base.grid_thw

    @property
    def metadata(self) -> dict[str, Any]:
        """True times of the places, whatever they show."""
        return self.base.metadata

    @property
    def seconds_per_grid(self) -> float:
        """Seconds between temporal slices."""
        return self.base.seconds_per_grid

    @property
    def frames_THWC(self) -> np.ndarray:
        """The frames as they are shown (a copy)."""
        return self.base.frames_THWC[list(self.order)]

    @property
    def pixel_values(self) -> torch.Tensor:
        """[t x p, F] of the whole changed clip (a copy)."""
        return self._rows(range(self.grid_thw[0]))

    @cached_property
    def sources(self) -> tuple[int | None, ...]:
        """For each slice, the slice of `base` that it equals; None: it is dirty."""
        per_slice = self._frames_per_slice
        runs = [self.order[i : i + per_slice] for i in range(0, len(self.order), per_slice)]
        whole = {tuple(range(i, i + per_slice)): i // per_slice for i in range(0, len(self.order), per_slice)}
        return tuple(whole.get(run) for run in runs)

    @property
    def dirty(self) -> tuple[int, ...]:
        """Slices that have to go through the tower."""
        return tuple(t for t, source in enumerate(self.sources) if source is None)

    def dirty_pixels(self) -> SlicePixels:
        """The dirty slices as the tower takes them."""
        _, h, w = self.grid_thw
        return SlicePixels(self.id, self._rows(self.dirty), (len(self.dirty), h, w))

    def assemble(self, base: VisionOutput, dirty: VisionOutput | None) -> VisionOutput:
        """Embeddings of the whole changed clip, from those of `base` and of the dirty slices (None: there are none)."""
        deep = dirty.deepstack if dirty is not None else (None,) * len(base.deepstack)
        layers = tuple(self._merge(b, d) for b, d in zip(base.deepstack, deep, strict=True))
        return VisionOutput(self._merge(base.embeds_VD, None if dirty is None else dirty.embeds_VD), layers)

    def _merge(self, base_VD: torch.Tensor, dirty_VD: torch.Tensor | None) -> torch.Tensor:
        base_tnD = base_VD.view(len(self.sources), -1, base_VD.shape[-1])
        out_tnD = base_tnD[[0 if source is None else source for source in self.sources]]
        if dirty_VD is not None:
            out_tnD[list(self.dirty)] = dirty_VD.view(len(self.dirty), *out_tnD.shape[1:])
        return out_tnD.flatten(0, 1)

    @property
    def _frames_per_slice(self) -> int:
        return len(self.order) // self.grid_thw[0]

    def _rows(self, slices: Sequence[int]) -> torch.Tensor:
        """[slices x p, F]: a patch's features are its channels, in each the frames of its slice, in each the pixels."""
        t, k, channels = self.grid_thw[0], self._frames_per_slice, self.base.frames_THWC.shape[-1]
        features = self.base.pixel_values.shape[-1]
        base = self.base.pixel_values.view(t, -1, channels, k, features // (channels * k))
        frame_dk = torch.tensor([self.order[s * k : (s + 1) * k] for s in slices], dtype=torch.int64).view(-1, k)
        shown_dkpCx = base[frame_dk // k, :, :, frame_dk % k]
        return shown_dkpCx.permute(0, 2, 3, 1, 4).reshape(-1, features)


@dataclass(frozen=True, eq=False)
class SlicePixels:
    """Some slices of one clip: pixel rows [d x p, F] and their grid (d, height, width)."""

    id: str
    pixel_values: torch.Tensor
    grid_thw: tuple[int, int, int]


def whole(medium: Medium | Variant) -> Medium:
    """The true clip."""
    return medium.base if isinstance(medium, Variant) else medium
