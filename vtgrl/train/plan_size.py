"""How large a run is: parameters, memory a rank, tokens a clip. Estimates that need a config, no weights and no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PretrainedConfig

from vtgrl.core.schema import GrpoRecipe, SftRecipe
from vtgrl.core.types import Sample
from vtgrl.data.video.plan import FRAME_FACTOR, plan_frames
from vtgrl.data.video.types import FramePolicy
from vtgrl.model.families import family_for
from vtgrl.model.trainable import add_lora, freeze_parts

BYTES = {"fp32": 4, "bf16": 2}
ACTIVATION_VALUES = 17
"""Values a decoder layer keeps per token and hidden unit for its backward pass, attention scores not stored (Korthikanti et al.,
arXiv:2205.05198, eq. 2: 34 bytes in bf16)."""
ASSUMED_RATE = 30.0
"""Frames a second of a file that cannot be looked at."""


@dataclass(frozen=True)
class ModelSize:
    """Parameter counts and the widths that memory depends on. `unit`: side of a merged patch in pixels, 0 without vision."""

    parameters: int
    trainable: int
    groups: dict[str, int]
    layers: int
    hidden: int
    kv_values_per_token: int
    unit: int


def measure(config: PretrainedConfig, recipe: SftRecipe | GrpoRecipe) -> ModelSize:
    """Build the model without memory and count.

    Raises:
        ConfigError: an unknown family; a part to freeze, or an adapter target, that matches nothing.
    """
    family = family_for(config)
    auto: Any = AutoModelForImageTextToText if family.unit(config) else AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
        model.tie_weights()
        counts = {name: p.numel() for name, p in model.named_parameters()}
        groups = {group: sum(counts[n] for n in names) for group, names in family.freeze_groups(model).items()}
        if recipe.model.lora.r:
            add_lora(model, recipe.model.lora, seed=0)
        freeze_parts(model, family, recipe.model.freeze)
    text = config.get_text_config()
    head = text.hidden_size // text.num_attention_heads
    return ModelSize(
        parameters=sum(counts.values()),
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        groups=groups,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        kv_values_per_token=2 * text.num_hidden_layers * text.num_key_value_heads * (text.to_dict().get("head_dim") or head),
        unit=family.unit(config),
    )


def memory(size: ModelSize, recipe: SftRecipe | GrpoRecipe, *, world_size: int, row_tokens: int) -> dict[str, float]:
    """Bytes a rank, by part. `offloaded` lies in CPU memory. Engines add what `gpu_memory_utilization` gives them."""
    zero, value = recipe.zero, BYTES[recipe.model.dtype]
    share = [world_size if zero.stage >= stage else 1 for stage in range(4)]  # index: the stage that shards the part
    layer = ACTIVATION_VALUES * row_tokens * size.hidden * value
    kept = row_tokens * size.hidden * value
    master = 4 if recipe.model.dtype == "bf16" else 0
    parts = {
        "weights": size.parameters * value / share[3],
        "gradients (fp32)": size.trainable * 4 / share[2],
        "optimizer": size.trainable * (8 + master) / share[1],
        "activations": size.layers * kept + layer if recipe.model.gradient_checkpointing else size.layers * layer,
    }
    if isinstance(recipe, GrpoRecipe):
        if recipe.algo.kl.coef and not recipe.model.lora.r:
            parts["reference weights"] = size.parameters * value / share[3]
        if recipe.rollout.engine.name == "vllm_colocate":
            longest = recipe.data.max_prompt_tokens + recipe.rollout.sampling.max_tokens
            parts["vLLM weights"] = float(size.parameters * value)
            parts["vLLM KV cache of one longest row"] = float(size.kv_values_per_token * longest * value)
    offloaded = ["optimizer"] * zero.offload_optimizer + ["weights"] * zero.offload_params
    return {f"{name} (in CPU memory)" if name in offloaded else name: float(amount) for name, amount in parts.items()}


def clip_tokens(samples: Sequence[Sample], policy: FramePolicy, *, height: int, width: int) -> np.ndarray:
    """Vision tokens of every sample's clip whose duration is known, for frames of one size; by the frame plan itself."""
    durations = [s.video.duration for s in samples if s.video is not None and s.video.duration]
    return np.array([_tokens(duration, policy, height, width) for duration in durations], dtype=np.int64)


def _tokens(duration: float, policy: FramePolicy, height: int, width: int) -> int:
    times = np.arange(max(1, round(duration * ASSUMED_RATE))) / ASSUMED_RATE
    plan = plan_frames(times, start=0.0, end=duration, rate=ASSUMED_RATE, height=height, width=width, policy=policy, where="plan")
    frames = len(plan.indices) + plan.repeats
    return frames // FRAME_FACTOR * (plan.height // policy.unit) * (plan.width // policy.unit)
