"""The frozen start model that the KL term measures against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vtgrl.core.schema import LoraConfig
from vtgrl.model.load import load_model
from vtgrl.model.types import PackedGroup
from vtgrl.train.ds_config import reference_config
from vtgrl.train.engine_ds import DsEngine, start_deepspeed
from vtgrl.train.session import Session
from vtgrl.train.update import score


class Reference:
    """Scores answers under the start model: the policy without its adapters when it has LoRA, else a second copy
    (sharded like the policy under ZeRO-3)."""

    def __init__(self, session: Session) -> None:
        self.session = session
        lora = session.recipe.model.lora.r > 0
        self.engine: Any = session.engine if lora else _FrozenEngine(session)
        self.adapters_off = session.loaded.policy.reference if lora else None

    def score(self, groups: Sequence[PackedGroup], *, temperature: float) -> list[torch.Tensor]:
        """Log-probs [R] a group (collective)."""
        limit = self.session.recipe.train.tokens_per_micro_batch
        if self.adapters_off is None:
            return score(self.engine, groups, max_tokens=limit, temperature=temperature)
        with self.adapters_off():
            return score(self.engine, groups, max_tokens=limit, temperature=temperature)


class _FrozenEngine(DsEngine):
    """A second copy of the start model; it never trains."""

    def __init__(self, session: Session) -> None:
        recipe, world = session.recipe, session.world
        loaded = load_model(recipe.model.path, dtype=recipe.model.dtype, lora=LoraConfig())
        policy = loaded.policy.to(world.device).requires_grad_(False).eval()
        self.world = world
        self.policy = policy
        self.engine: Any = policy
        if recipe.zero.stage == 3 and world.size > 1:
            self.engine, *_ = start_deepspeed(world).initialize(model=policy, config=reference_config(recipe, world_size=world.size))
