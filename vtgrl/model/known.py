"""Shapes of models that published recipes name, so that a dry run needs no download.

The numbers are those of the config.json files of the three checkpoints; parameter counts made from them equal the
published ones (3,754,622,976; 8,292,166,656; 8,767,123,696).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

_QWEN2_5_VISION = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "tokens_per_second": 2,
}
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": {
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "intermediate_size": 11008,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
        "vision_config": {**_QWEN2_5_VISION, "out_hidden_size": 2048},
    },
    "Qwen/Qwen2.5-VL-7B-Instruct": {
        "model_type": "qwen2_5_vl",
        "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
        },
        "vision_config": {**_QWEN2_5_VISION, "out_hidden_size": 3584},
    },
    "Qwen/Qwen3-VL-8B-Instruct": {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 12288,
            "vocab_size": 151936,
        },
        "vision_config": {
            "depth": 27,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_heads": 16,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": 4096,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": [8, 16, 24],
        },
    },
}
"""Hub name -> the part of its config.json that decides sizes."""


def find_config(path: str) -> tuple[PreTrainedConfig, str] | None:
    """(config, where it comes from) of a model folder, a cached hub model or a known name; None when there is none.

    Nothing is downloaded.
    """
    if (Path(path) / "config.json").is_file():
        return AutoConfig.from_pretrained(path, local_files_only=True), f"{path}/config.json"
    if path not in KNOWN:
        return None
    facts = KNOWN[path]
    return AutoConfig.for_model(**facts), "not on this machine: sizes from vtgrl's table"
