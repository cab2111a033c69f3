"""Model families: `family_for(config)` makes the one that a Hugging Face config names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PretrainedConfig

from vtgrl.core.registry import get

if TYPE_CHECKING:
    from vtgrl.model.families.base import Family


def family_for(config: PretrainedConfig) -> Family:
    """The family of a model config: by `model_type` when the model has a vision tower, else `text`.

    Raises:
        ConfigError: a vision model of a type that no file in this folder registers.
    """
    name = config.model_type if "vision_config" in config.sub_configs else "text"
    family: Family = get("family", name).fn()
    return family
