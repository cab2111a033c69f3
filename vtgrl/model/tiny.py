"""Random tiny checkpoints of every family: real config, weights, tokenizer, processor and chat template, in a second.

They load with plain `AutoModelForImageTextToText` / `AutoModelForCausalLM` / `AutoProcessor` and with vLLM, so that
everything that a cluster runs on billions of parameters can run, be tested and learn on a laptop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from vtgrl.core.errors import ConfigError
from vtgrl.model.tiny_tokenizer import END_OF_TEXT, TURN_END, make_tokenizer

HEADS, KV_HEADS = 4, 2
VISION_HIDDEN, VISION_DEPTH = 64, 2
MAX_POSITIONS = 8192
PIXEL_MEAN, PIXEL_STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""One pair for images AND videos: vLLM normalises videos with the image processor's numbers."""


@dataclass(frozen=True)
class Size:
    """Shape of the text model."""

    hidden: int
    layers: int
    tie: bool


def _text_config(size: Size, tokenizer: PreTrainedTokenizerFast, **extra: Any) -> dict[str, Any]:
    return dict(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=2 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=MAX_POSITIONS,
        **extra,
    )


def _stop_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    return {"bos_token_id": tokenizer.convert_tokens_to_ids(END_OF_TEXT), "eos_token_id": tokenizer.convert_tokens_to_ids(TURN_END)}


def _mrope(size: Size, **extra: Any) -> dict[str, Any]:
    """A quarter of the rotary frequencies tells time, the rest height and width (sections sum to head size / 2)."""
    half = size.hidden // HEADS // 2
    spatial = (half - half // 4) // 2
    return dict(rope_type="default", rope_theta=10000.0, mrope_section=[half - 2 * spatial, spatial, spatial], **extra)


def _vision_ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int]:
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def _pixels(unit: int, patch: int, *, frames: int = 1) -> dict[str, Any]:
    """Settings of an image or video processor. `frames`: how many frames share `longest_edge` (Qwen3-VL counts a clip)."""
    return {
        "size": {"shortest_edge": unit * unit, "longest_edge": 64 * unit * unit * frames},
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": list(PIXEL_MEAN),
        "image_std": list(PIXEL_STD),
    }


def _processor(cls: type[Any], video_cls: type[Any], tokenizer: PreTrainedTokenizerFast, *, patch: int, frames: int = 1) -> Any:
    return cls(
        image_processor=Qwen2VLImageProcessor(**_pixels(2 * patch, patch)),
        tokenizer=tokenizer,
        video_processor=video_cls(**_pixels(2 * patch, patch, frames=frames), cap_pixels_per_frame=False, do_sample_frames=False),
        chat_template=tokenizer.chat_template,
    )


def _qwen2_vl(size: Size) -> tuple[PreTrainedModel, Any]:
    tokenizer = make_tokenizer()
    config = Qwen2VLConfig(
        text_config=_text_config(size, tokenizer, rope_parameters=_mrope(size), **_stop_ids(tokenizer)),
        vision_config={
            "depth": VISION_DEPTH,
            "embed_dim": VISION_HIDDEN,
            "hidden_size": size.hidden,
            "mlp_ratio": 2,
            "num_heads": HEADS,
            "patch_size": 14,
        },
        tie_word_embeddings=size.tie,
        **_vision_ids(tokenizer),
    )
    return Qwen2VLForConditionalGeneration(config), _processor(Qwen2VLProcessor, Qwen2VLVideoProcessor, tokenizer, patch=14)


def _qwen2_5_vl(size: Size) -> tuple[PreTrainedModel, Any]:
    tokenizer = make_tokenizer()
    config = Qwen2_5_VLConfig(
        text_config=_text_config(size, tokenizer, rope_parameters=_mrope(size), **_stop_ids(tokenizer)),
        vision_config={
            "depth": VISION_DEPTH,
            "hidden_size": VISION_HIDDEN,
            "intermediate_size": 2 * VISION_HIDDEN,
            "out_hidden_size": size.hidden,
            "num_heads": HEADS,
            "patch_size": 14,
            "window_size": 56,
            "fullatt_block_indexes": [VISION_DEPTH - 1],
            "tokens_per_second": 2,
        },
        tie_word_embeddings=size.tie,
        **_vision_ids(tokenizer),
    )
    return Qwen2_5_VLForConditionalGeneration(config), _processor(Qwen2_5_VLProcessor, Qwen2VLVideoProcessor, tokenizer, patch=14)


def _qwen3_vl(size: Size) -> tuple[PreTrainedModel, Any]:
    tokenizer = make_tokenizer()
    config = Qwen3VLConfig(
        text_config=_text_config(
            size, tokenizer, head_dim=size.hidden // HEADS, rope_parameters=_mrope(size, mrope_interleaved=True), **_stop_ids(tokenizer)
        ),
        vision_config={
            "depth": VISION_DEPTH,
            "hidden_size": VISION_HIDDEN,
            "intermediate_size": 2 * VISION_HIDDEN,
            "out_hidden_size": size.hidden,
            "num_heads": HEADS,
            "patch_size": 16,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": list(range(VISION_DEPTH)),
        },
        tie_word_embeddings=size.tie,
        **_vision_ids(tokenizer),
    )
    processor = _processor(Qwen3VLProcessor, Qwen3VLVideoProcessor, tokenizer, patch=16, frames=64)
    return Qwen3VLForConditionalGeneration(config), processor


def _text(size: Size) -> tuple[PreTrainedModel, Any]:
    tokenizer = make_tokenizer(vision=False)
    config = LlamaConfig(
        **_text_config(size, tokenizer),
        **_stop_ids(tokenizer),
        tie_word_embeddings=size.tie,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    return LlamaForCausalLM(config), tokenizer


MAKERS: dict[str, Callable[[Size], tuple[PreTrainedModel, Any]]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "text": _text,
}


def build_tiny(out: Path, *, family: str, seed: int = 0, hidden: int = 128, layers: int = 4, tie: bool = False, gain: float = 1.0) -> Path:
    """Write a random checkpoint to `out` and return it. The same arguments give the same bytes of weights.

    Args:
        family: qwen2_vl, qwen2_5_vl, qwen3_vl or text (a Llama causal LM).
        seed: of the weights; the tokenizer never changes.
        hidden: width of the text model, a multiple of 32 (four heads).
        layers: depth of the text model.
        tie: one matrix for the token embedding and the head.
        gain: multiplies every random matrix. Their standard deviation of 0.02 is meant for wide models; at width 128 a
            model learns in about half the steps from 1 / sqrt(128), a gain of 4.4.

    Raises:
        ConfigError: no such family, or `hidden` does not divide into heads.
    """
    if family not in MAKERS:
        raise ConfigError(f"no tiny model of family {family!r}; there are: {', '.join(MAKERS)}")
    if hidden % 32:
        raise ConfigError(f"hidden={hidden}: the tiny models have {HEADS} heads with 8 rotary pairs at least; use a multiple of 32")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, processor = MAKERS[family](Size(hidden, layers, tie))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:  # biases and norms are not random
                parameter.mul_(gain)
    stops = _stop_ids(make_tokenizer(vision=False))
    model.generation_config.eos_token_id = [stops["eos_token_id"], stops["bos_token_id"]]
    model.generation_config.bos_token_id = model.generation_config.pad_token_id = stops["bos_token_id"]
    model.save_pretrained(out)
    processor.save_pretrained(out)
    return Path(out)
