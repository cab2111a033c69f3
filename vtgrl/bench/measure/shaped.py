"""A random model in the shape of a published one: `python -m vtgrl.bench.measure.shaped OUT [--layers N] [--dtype bf16]`.

Widths, heads, vocabulary and vision tower are those of the checkpoint; tokenizer and processor are those of the tiny models, so nothing
is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from vtgrl.core.errors import ConfigError
from vtgrl.core.schema import Dtype
from vtgrl.model.known import KNOWN
from vtgrl.model.load import DTYPES
from vtgrl.model.tiny import build_tiny

SHAPE = "Qwen/Qwen2.5-VL-3B-Instruct"
TOKEN_IDS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


def build_shaped(out: Path, *, shape: str = SHAPE, layers: int = 0, dtype: Dtype = "bf16") -> Path:
    """Write a random checkpoint to `out` and return it.

    Args:
        shape: hub name of a checkpoint that `vtgrl.model.known` knows.
        layers: of the text model; 0: all of them.

    Raises:
        ConfigError: no such shape.
    """
    if shape not in KNOWN:
        raise ConfigError(f"no model of shape {shape!r} is known; there are: {', '.join(KNOWN)}")
    with TemporaryDirectory(prefix="vtgrl-shape-") as folder:
        tiny = build_tiny(Path(folder) / "tiny", family=KNOWN[shape]["model_type"], layers=1)
        AutoProcessor.from_pretrained(tiny).save_pretrained(out)
        GenerationConfig.from_pretrained(tiny).save_pretrained(out)
        config = _config(KNOWN[shape], AutoConfig.from_pretrained(tiny), layers=layers)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForImageTextToText.from_config(config, dtype=DTYPES[dtype])
    model.save_pretrained(out)
    return out


def _config(facts: dict[str, Any], tiny: Any, *, layers: int) -> Any:
    text = dict(facts["text_config"])
    text["num_hidden_layers"] = layers or text["num_hidden_layers"]
    text |= {key: tiny.text_config.to_dict()[key] for key in ("bos_token_id", "eos_token_id")}
    text |= {"max_position_embeddings": 128_000, "rope_parameters": _rope(text, tiny)}
    ids = {key: getattr(tiny, key) for key in TOKEN_IDS}
    return AutoConfig.for_model(**{**facts, "text_config": text, **ids})


def _rope(text: dict[str, Any], tiny: Any) -> dict[str, Any]:
    """Of the rotary frequencies a quarter tells time, the rest height and width: 16, 24, 24 for heads of 128."""
    half = text.get("head_dim", text["hidden_size"] // text["num_attention_heads"]) // 2
    spatial = (half - half // 4) // 2
    return {**tiny.text_config.rope_parameters, "rope_theta": 1e6, "mrope_section": [half - 2 * spatial, spatial, spatial]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default=SHAPE)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16")
    args = parser.parse_args()
    build_shaped(args.out, shape=args.shape, layers=args.layers, dtype=args.dtype)


if __name__ == "__main__":
    main()
