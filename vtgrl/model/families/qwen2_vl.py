"""Qwen2-VL (arXiv:2409.12191): a temporal slice is one position, whatever its length in seconds."""

from __future__ import annotations

from vtgrl.core.registry import register
from vtgrl.model.families._qwen_vl import OLD_PREFIXES, QwenVL


@register("family", "qwen2_vl", paper="arXiv:2409.12191")
class Qwen2VL(QwenVL):
    """Qwen2-VL: patch 14, the time axis counts slices, so the frame rate does not reach the positions."""

    name = "qwen2_vl"
    checkpoint_prefixes = OLD_PREFIXES
