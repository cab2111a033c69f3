"""Recipe -> DeepSpeed settings."""

import pytest

from vtgrl.core.schema import LoraConfig, ModelConfig, OptimConfig, SftRecipe, ZeroConfig
from vtgrl.train.ds_config import ds_config, reference_config


def recipe(dtype="bf16", **zero) -> SftRecipe:
    return SftRecipe(model=ModelConfig(dtype=dtype, lora=LoraConfig()), zero=ZeroConfig(**zero), optim=OptimConfig(lr=0.5, grad_clip=2.0))


def test_deepspeed_neither_splits_nor_accumulates_by_itself():
    config = ds_config(recipe(), world_size=4, cuda=True)
    assert config["train_batch_size"] == 4
    assert config["train_micro_batch_size_per_gpu"] == config["gradient_accumulation_steps"] == 1
    assert config["gradient_clipping"] == 2.0
    assert config["optimizer"]["params"]["lr"] == 0.5


@pytest.mark.parametrize(("dtype", "enabled"), [("bf16", True), ("fp32", False)])
def test_gradients_add_up_in_fp32_whatever_the_weights_are(dtype, enabled):
    config = ds_config(recipe(dtype), world_size=1, cuda=False)
    assert config["bf16"]["enabled"] is enabled
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}


@pytest.mark.parametrize(
    ("cuda", "offload", "torch_adam"), [(False, False, True), (False, True, True), (True, False, True), (True, True, False)]
)
def test_nothing_is_compiled_on_a_cpu(cuda, offload, torch_adam):
    config = ds_config(recipe(offload_optimizer=offload), world_size=1, cuda=cuda)
    assert config["optimizer"]["params"]["torch_adam"] is torch_adam
    assert config["zero_optimization"].get("offload_optimizer") == ({"device": "cpu", "pin_memory": cuda} if offload else None)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_only_stage_3_shards_weights(stage):
    zero = ds_config(recipe(stage=stage, persistence_threshold=7), world_size=1, cuda=False)["zero_optimization"]
    assert zero["stage"] == stage
    assert zero.get("stage3_param_persistence_threshold") == (7 if stage == 3 else None)
    assert "offload_param" not in zero
    assert "offload_param" in ds_config(recipe(offload_params=True), world_size=1, cuda=False)["zero_optimization"]


def test_the_reference_has_no_optimizer():
    config = reference_config(recipe(offload_optimizer=True, stage=2), world_size=2, cuda=False)
    assert "optimizer" not in config
    assert "offload_optimizer" not in config["zero_optimization"]
    assert config["zero_optimization"]["stage"] == 3
