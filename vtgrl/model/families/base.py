"""What a model family has to know. One file a family; everything else is family-blind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from vtgrl.model.types import Medium


@dataclass(frozen=True, eq=False)
class VisionOutput:
    """embeds_VD: merged vision tokens of all media, in order. deepstack: per injected layer another [V, D] (Qwen3-VL)."""

    embeds_VD: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()


class Family(Protocol):
    """Registered as `@register("family", model_type)`; `get("family", config.model_type).fn()` makes one."""

    name: str

    def unit(self, config: Any) -> int:
        """patch size x merge size; 0 for a text model."""

    def clip_inputs(self, processor: Any, medium_frames: Any, metadata: dict[str, Any]) -> tuple[torch.Tensor, tuple[int, int, int], float]:
        """Frames [T,H,W,3] uint8 -> (pixel_values, grid_thw, seconds_per_grid), by the HF video processor."""

    def expand(self, processor: Any, text: str, media: tuple[Medium, ...]) -> list[int]:
        """Chat text with one placeholder per medium -> expanded ids, equal to the HF processor's and to vLLM's."""

    def positions(self, config: Any, input_ids: tuple[int, ...], media: tuple[Medium, ...]) -> tuple[torch.Tensor, int]:
        """-> ([3, P] int64, next position). Equal to vLLM's; fractional seconds are quantised only after the product."""

    def vision_token_id(self, config: Any) -> int | None:
        """Id of the video placeholder in `input_ids`; None for a text model."""

    def encode_vision(self, model: nn.Module, pixel_values: torch.Tensor, grid_thw: torch.Tensor) -> VisionOutput:
        """One tower call on all media of a micro-batch (pixel rows concatenated, grid [media, 3])."""

    def dummy_vision(self, config: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The smallest (pixel_values, grid_thw): ranks without media run it times zero, so that ZeRO-3 does not hang."""

    def text_forward(
        self,
        model: nn.Module,
        embeds_1TD: torch.Tensor,
        positions_31T: torch.Tensor,
        vision: VisionOutput | None,
        vision_index: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Language model on embeddings (vision already scattered in) -> last hidden state [1, T, D] after the final norm."""

    def embed(self, model: nn.Module) -> nn.Module:
        """Token embedding module."""

    def head(self, model: nn.Module) -> nn.Module:
        """Linear that makes logits."""

    def freeze_groups(self, model: nn.Module) -> dict[str, list[str]]:
        """Group name (vision, merger, embed, lm_head, text) -> parameter names of the HF model."""

    def checkpoint_name(self, name: str) -> str:
        """Parameter name in the module -> name in a checkpoint, as vLLM's `load_weights` takes it."""
