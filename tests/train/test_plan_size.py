"""Estimates of the dry run against real counts."""

from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoConfig

from vtgrl.core.errors import ConfigError
from vtgrl.core.schema import LoraConfig, ModelConfig, SftRecipe, ZeroConfig
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.video.plan import resolve_policy
from vtgrl.model.load import load_model
from vtgrl.train.plan_size import clip_tokens, measure, memory


@pytest.mark.parametrize(("family", "freeze"), [("qwen2_5_vl", ("vision",)), ("qwen3_vl", ("vision", "merger")), ("text", ())])
@pytest.mark.parametrize("rank", [0, 2])
def test_counts_are_those_of_the_loaded_model(tiny_dir, family, freeze, rank):
    path = tiny_dir(family)
    config = ModelConfig(path=str(path), dtype="fp32", freeze=freeze, lora=LoraConfig(r=rank))
    size = measure(AutoConfig.from_pretrained(path), SftRecipe(model=config))
    hf = load_model(path, dtype="fp32", freeze=freeze, lora=config.lora).policy.hf
    assert size.trainable == sum(p.numel() for p in hf.parameters() if p.requires_grad)
    assert size.parameters == sum(p.numel() for n, p in hf.named_parameters() if "lora" not in n)
    assert size.unit == (0 if family == "text" else hf.config.vision_config.patch_size * 2)
    text = hf.config.get_text_config()
    assert size.kv_values_per_token == 2 * text.num_hidden_layers * text.num_key_value_heads * (
        text.hidden_size // text.num_attention_heads
    )


def test_a_frozen_part_that_does_not_exist_is_named(tiny_dir):
    recipe = SftRecipe(model=ModelConfig(freeze=("visoin",)))
    with pytest.raises(ConfigError, match="visoin"):
        measure(AutoConfig.from_pretrained(tiny_dir("qwen2_5_vl")), recipe)


def test_each_zero_stage_shards_one_part_more(tiny_dir):
    config = AutoConfig.from_pretrained(tiny_dir("qwen2_5_vl"))
    parts = {}
    for stage in (0, 1, 2, 3):
        recipe = SftRecipe(model=ModelConfig(dtype="bf16", freeze=()), zero=ZeroConfig(stage=stage))
        size = measure(config, recipe)
        parts[stage] = memory(size, recipe, world_size=4, row_tokens=100)
    n = size.parameters
    assert [parts[s]["weights"] for s in parts] == [2 * n, 2 * n, 2 * n, n / 2]
    assert [parts[s]["gradients (fp32)"] for s in parts] == [4 * n, 4 * n, n, n]
    assert [parts[s]["optimizer"] for s in parts] == [12 * n, 3 * n, 3 * n, 3 * n]
    kept = replace(recipe, model=ModelConfig(gradient_checkpointing=True))
    assert memory(size, kept, world_size=4, row_tokens=100)["activations"] < parts[3]["activations"]
    assert "optimizer (in CPU memory)" in memory(size, replace(recipe, zero=ZeroConfig(offload_optimizer=True)), world_size=4, row_tokens=1)


def test_vision_tokens_follow_the_frame_plan():
    """10 s at 2 fps: 20 frames of 224 x 448 -> 10 temporal patches of 8 x 16 merged patches of 28 pixels."""
    policy = resolve_policy(SftRecipe().video, unit=28)
    samples = [
        Sample("a", "vtg", "q", VideoRef("a.mp4", duration=10.0)),
        Sample("b", "vtg", "q", VideoRef("b.mp4")),
        Sample("c", "text", "q"),
    ]
    np.testing.assert_array_equal(clip_tokens(samples, policy, height=224, width=448), [10 * 8 * 16])
    long = [Sample("d", "vtg", "q", VideoRef("d.mp4", duration=300.0))]
    assert clip_tokens(long, policy, height=1080, width=1920)[0] <= 3584
