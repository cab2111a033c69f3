"""An engine on its own, without a trainer: a model folder answers prompts."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Literal

import torch

from vtgrl.core.registry import Component, get
from vtgrl.core.schema import Dtype, SamplingConfig, VideoConfig
from vtgrl.model.load import ModelParts, load_model
from vtgrl.model.prompting import PromptBuilder
from vtgrl.rollout.protocol import EngineContext, RolloutEngine

GPU_SHARE = 0.85
"""Of a GPU that nobody else uses."""


def choose_engine(wanted: Literal["", "hf", "vllm"]) -> Literal["hf", "vllm"]:
    """The engine by name; empty: vLLM on a GPU when it is installed, else hf."""
    return wanted or ("vllm" if torch.cuda.is_available() and importlib.util.find_spec("vllm") else "hf")


def choose_dtype(wanted: Dtype | None) -> Dtype:
    """The number format by name; None: bf16 on a GPU, else fp32."""
    return wanted or ("bf16" if torch.cuda.is_available() else "fp32")


def open_engine(
    parts: ModelParts,
    *,
    engine: Literal["hf", "vllm"],
    dtype: Dtype,
    template: Component,
    video: VideoConfig,
    max_prompt_tokens: int,
    sampling: SamplingConfig,
    seed: int,
) -> tuple[RolloutEngine, PromptBuilder]:
    """The engine with the weights of `parts.path` (version 0), and the builder of its prompts. Close both.

    Raises:
        ConfigError: the model cannot be loaded.
        EnvironmentMissing: the engine is not installed.
    """
    builder = PromptBuilder(
        processor=parts.processor, family=parts.family, config=parts.config, video=video, template=template,
        max_prompt_tokens=max_prompt_tokens, eos_ids=sorted(parts.eos_ids),
    )  # fmt: skip
    policy = load_model(parts.path, dtype=dtype).policy.eval() if engine == "hf" else None
    if policy is not None and torch.cuda.is_available():
        policy = policy.to("cuda")
    length = min(max_prompt_tokens + sampling.max_tokens, parts.config.get_text_config().max_position_embeddings)
    context = EngineContext(model_path=parts.path, policy=policy, builder=builder, dtype=dtype, max_model_len=length, seed=seed)
    entry = get("engine", "hf" if engine == "hf" else "vllm_colocate")
    config = entry.config() if engine == "hf" else replace(entry.config(), gpu_memory_utilization=GPU_SHARE)
    return entry.fn(context, config=config), builder
