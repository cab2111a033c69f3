"""Qwen3-VL (arXiv:2511.21631): time is written as text, `<0.5 seconds>`, in front of every temporal slice."""

from __future__ import annotations

from typing import Any

from vtgrl.core.registry import register
from vtgrl.model.families._mrope import Block
from vtgrl.model.families._qwen_vl import QwenVL
from vtgrl.model.types import Medium


@register("family", "qwen3_vl", paper="arXiv:2511.21631")
class Qwen3VL(QwenVL):
    """Qwen3-VL: patch 16, timestamps as text, features of deeper tower layers added in the first text layers (DeepStack)."""

    name = "qwen3_vl"
    deepstack = True

    def clip_text(self, processor: Any, medium: Medium, merge: int) -> str:
        """Timestamp, then the slice between its markers, for every slice."""
        _, h, w = medium.grid_thw
        frame = processor.vision_start_token + processor.video_token * (h * w // merge**2) + processor.vision_end_token
        times = slice_times(medium.metadata, processor.video_processor.temporal_patch_size)
        assert len(times) == medium.grid_thw[0], "one timestamp a slice"
        return "".join(f"<{seconds:.1f} seconds>{frame}" for seconds in times)

    def blocks(self, config: Any, medium: Medium) -> list[Block]:
        """One run a slice."""
        t, h, w = medium.grid_thw
        merge = config.vision_config.spatial_merge_size
        return [Block(0, 1, h // merge, w // merge)] * t


def slice_times(metadata: dict[str, Any], temporal_patch: int) -> list[float]:
    """Middle between the first and last frame of every slice, in seconds; an odd clip's last frame counts twice."""
    seconds = [index / metadata["fps"] for index in metadata["frames_indices"]]
    seconds += [seconds[-1]] * (-len(seconds) % temporal_patch)
    return [(seconds[i] + seconds[i + temporal_patch - 1]) / 2 for i in range(0, len(seconds), temporal_patch)]
