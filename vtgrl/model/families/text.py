"""Text-only causal language models (Llama, Qwen2, Qwen3, SmolLM2, ...): every config without a vision tower."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import nn

from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import register
from vtgrl.model.families.base import VisionOutput
from vtgrl.model.types import Medium


@register("family", "text")
class Text:
    """Any `AutoModelForCausalLM`: plain positions, no video."""

    name = "text"

    def unit(self, config: Any) -> int:
        """No patches."""
        return 0

    def vision_token_id(self, config: Any) -> int | None:
        """No placeholder."""
        return None

    def clip_inputs(self, processor: Any, medium_frames: Any, metadata: dict[str, Any]) -> NoReturn:
        """Raises:
        ConfigError: always; a text model cannot watch.
        """
        raise ConfigError("this is a text-only model: it cannot read a video; choose a vision-language model or rows without video")

    def expand(self, processor: Any, text: str, media: tuple[Medium, ...]) -> list[int]:
        """Chat text -> ids. The chat template writes every special token itself."""
        assert not media, "a text model has no media"
        return list(processor(text, add_special_tokens=False)["input_ids"])

    def positions(self, config: Any, input_ids: tuple[int, ...], media: tuple[Medium, ...]) -> tuple[torch.Tensor, int]:
        """0, 1, 2, ... in three equal rows."""
        return torch.arange(len(input_ids)).expand(3, -1).contiguous(), len(input_ids)

    def encode_vision(self, model: Any, pixel_values: torch.Tensor, grid_thw: torch.Tensor) -> NoReturn:
        """Raises:
        ConfigError: always.
        """
        raise ConfigError("this is a text-only model: it has no vision tower")

    def dummy_vision(self, config: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Nothing to run on ranks without media."""
        return None

    def text_forward(
        self,
        model: Any,
        embeds_1TD: torch.Tensor,
        positions_31T: torch.Tensor,
        vision: VisionOutput | None,
        vision_index: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Language model -> [1, T, D] after the final norm."""
        out = model.base_model(inputs_embeds=embeds_1TD, position_ids=positions_31T[0], use_cache=False, **kwargs)
        return out.last_hidden_state

    def embed(self, model: Any) -> nn.Module:
        """Token embedding module."""
        return model.get_input_embeddings()

    def head(self, model: Any) -> nn.Module:
        """Linear that makes logits."""
        return model.get_output_embeddings()

    def freeze_groups(self, model: Any) -> dict[str, list[str]]:
        """`embed`, `lm_head` and `text` (layers, norm). Tied weights: `embed` and `lm_head` are the same name."""
        embed_ids = {id(p) for p in self.embed(model).parameters()}
        head_ids = {id(p) for p in self.head(model).parameters()}
        named = list(model.named_parameters())
        return {
            "embed": [n for n, p in named if id(p) in embed_ids],
            "lm_head": [n for n, p in named if id(p) in head_ids],
            "text": [n for n, p in named if id(p) not in embed_ids | head_ids],
        }

    def checkpoint_name(self, name: str) -> str:
        """Same names on disk; the base layer of an adapter loses its extra level."""
        return name.replace(".base_layer.", ".")
