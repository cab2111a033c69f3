"""Qwen2.5-VL (arXiv:2502.13923): the time axis is absolute, `tokens_per_second` positions for each second of video."""

from __future__ import annotations

from typing import Any

from vtgrl.core.registry import register
from vtgrl.model.families._qwen_vl import OLD_PREFIXES, QwenVL
from vtgrl.model.types import Medium


@register("family", "qwen2_5_vl", paper="arXiv:2502.13923")
class Qwen2_5VL(QwenVL):
    """Qwen2.5-VL: patch 14, window attention, time axis in units of 1 / tokens_per_second.

    Slices closer than 1 / tokens_per_second seconds (above 4 frames a second at 2 tokens a second) share a position with a
    neighbour: that is the model's own resolution, and vLLM does the same. From there on positions strictly increase.
    """

    name = "qwen2_5_vl"
    checkpoint_prefixes = OLD_PREFIXES

    def time_step(self, config: Any, medium: Medium) -> float:
        """Seconds per slice x positions per second, a float."""
        return medium.seconds_per_grid * config.vision_config.tokens_per_second
