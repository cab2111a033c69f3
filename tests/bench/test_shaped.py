"""Random models in the shape of published ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vtgrl.bench.measure.kit import TinyConfig, answers, tiny_kit
from vtgrl.bench.measure.shaped import build_shaped
from vtgrl.core.errors import ConfigError
from vtgrl.model import known
from vtgrl.model.load import load_model
from vtgrl.model.types import PackedGroup

FACTS = {
    "model_type": "qwen2_5_vl",
    "tie_word_embeddings": True,
    "text_config": {
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 80,
        "vocab_size": 1500,
        "tie_word_embeddings": True,
    },
    "vision_config": {
        "depth": 3,
        "hidden_size": 48,
        "intermediate_size": 56,
        "num_heads": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 56,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
        "out_hidden_size": 96,
    },
}


@pytest.mark.parametrize(("layers", "expected"), [(0, 3), (2, 2)])
def test_it_loads_and_scores_a_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: int, expected: int) -> None:
    monkeypatch.setitem(known.KNOWN, "some/model", FACTS)
    folder = build_shaped(tmp_path / "m", shape="some/model", layers=layers, dtype="bf16")
    loaded = load_model(folder, dtype="bf16")
    text = loaded.config.get_text_config()
    assert (text.num_hidden_layers, text.hidden_size, text.vocab_size) == (expected, 96, 1500)
    assert loaded.config.vision_config.depth == 3
    assert text.rope_parameters["mrope_section"] == [4, 6, 6]  # halves of heads of 32
    with tiny_kit("qwen2_5_vl", TinyConfig(model=str(folder), dtype="bf16")) as kit:
        policy = kit.policy()
        assert next(policy.parameters()).dtype == torch.bfloat16
        out = policy((PackedGroup(kit.prompt("When?", [kit.medium(1)]), answers([3, 1])),))
    assert out.logp_R.shape == (4,)
    assert (folder / "config.json").is_file()  # a model that was given stays


def test_the_shape_of_the_3b_checkpoint() -> None:
    """Sections of the rotary frequencies as its config.json has them."""
    from transformers import AutoConfig

    from vtgrl.bench.measure import shaped

    tiny = AutoConfig.for_model("qwen2_5_vl", **dict.fromkeys(shaped.TOKEN_IDS, 1))
    tiny.text_config.rope_parameters = {"rope_type": "default", "rope_theta": 1.0}
    config = shaped._config(known.KNOWN[shaped.SHAPE], tiny, layers=0)
    assert config.text_config.rope_parameters["mrope_section"] == [16, 24, 24]
    assert (config.text_config.num_hidden_layers, config.vision_config.depth) == (36, 32)


def test_an_unknown_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no model of shape 'x' is known; there are: Qwen/"):
        build_shaped(tmp_path, shape="x")
