"""A recipe as DeepSpeed settings. Pure: the dry run prints what the run will use."""

from __future__ import annotations

from typing import Any

import torch

from vtgrl.core.schema import GrpoRecipe, SftRecipe, ZeroConfig


def ds_config(recipe: SftRecipe | GrpoRecipe, *, world_size: int, cuda: bool | None = None) -> dict[str, Any]:
    """Settings of the trained engine.

    The loop decides when a step is over, so DeepSpeed sees micro-batches of 1 and no accumulation of its own; gradients
    add up in fp32. torch's AdamW is used unless moments are off-loaded from a GPU: DeepSpeed would compile its own.

    Args:
        cuda: whether the run has GPUs; None: this machine.
    """
    cuda = torch.cuda.is_available() if cuda is None else cuda
    optim, zero = recipe.optim, recipe.zero
    params = {"lr": optim.lr, "betas": [optim.beta1, optim.beta2], "eps": optim.eps, "weight_decay": optim.weight_decay}
    return {
        **_base(recipe, world_size=world_size, stage=zero.stage, cuda=cuda),
        "gradient_accumulation_steps": 1,
        "gradient_clipping": optim.grad_clip,
        "data_types": {"grad_accum_dtype": "fp32"},
        "optimizer": {"type": "AdamW", "params": {**params, "torch_adam": not (cuda and zero.offload_optimizer)}},
    }


def reference_config(recipe: SftRecipe | GrpoRecipe, *, world_size: int, cuda: bool | None = None) -> dict[str, Any]:
    """Settings of the frozen start model: sharded like the policy, without an optimizer."""
    cuda = torch.cuda.is_available() if cuda is None else cuda
    settings = _base(recipe, world_size=world_size, stage=3, cuda=cuda)
    settings["zero_optimization"].pop("offload_optimizer", None)
    return settings


def _base(recipe: SftRecipe | GrpoRecipe, *, world_size: int, stage: int, cuda: bool) -> dict[str, Any]:
    return {
        "train_batch_size": world_size,
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": recipe.model.dtype == "bf16"},
        "zero_optimization": _zero(recipe.zero, stage=stage, cuda=cuda),
        "steps_per_print": 1_000_000_000,
    }


def _zero(zero: ZeroConfig, *, stage: int, cuda: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"stage": stage}
    cpu = {"device": "cpu", "pin_memory": cuda}
    if zero.offload_optimizer:
        settings["offload_optimizer"] = dict(cpu)
    if stage == 3:
        settings["stage3_param_persistence_threshold"] = zero.persistence_threshold
        if zero.offload_params:
            settings["offload_param"] = dict(cpu)
    return settings
