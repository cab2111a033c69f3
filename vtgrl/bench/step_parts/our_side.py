"""Our update: the code of `vtgrl train grpo` from drawn answers to new weights, through DeepSpeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from vtgrl.bench.step_parts.same_rollouts import SameRollouts
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.model.load import load_model
from vtgrl.train.annotate import annotate
from vtgrl.train.ds_config import ds_config
from vtgrl.train.engine_ds import DsEngine, StepInfo
from vtgrl.train.policy_update import PolicyUpdate
from vtgrl.train.rollouts import collect
from vtgrl.train.world import World, join_world

LR = 1e-5
UNCUT = 1e9
"""Largest gradient norm: both sides compute the norm, neither cuts."""


class Recording(DsEngine):
    """Keeps the gradients of the last step while `record` is set."""

    record = False
    gradients: dict[str, torch.Tensor]

    def step(self, *, lr: float) -> StepInfo:
        """As in training."""
        if self.record:
            self.gradients = copied({n: p.grad for n, p in self.policy.hf.named_parameters()})
        return super().step(lr=lr)


@dataclass(frozen=True)
class Parts:
    """What an update reads of a `Session`."""

    recipe: GrpoRecipe
    world: World
    engine: Recording


class OurSide:
    """`step()` is one update of the policy in `folder` on `rollouts`."""

    def __init__(self, folder: str, rollouts: SameRollouts, *, dtype: str, epochs: int) -> None:
        recipe = _recipe(folder, rollouts, dtype=dtype, epochs=epochs)
        self.policy = load_model(folder, dtype=recipe.model.dtype).policy
        world = join_world()
        self.policy.to(world.device)
        self.parts = Parts(recipe, world, Recording(self.policy, config=ds_config(recipe, world_size=world.size), world=world))
        self.drawn = collect([p.ours for p in rollouts.prompts], rollouts.completions, prefix="0", mask_truncated=False)
        self.table = rollouts.table
        self.loss = 0.0

    def step(self) -> None:
        """Advantages, old log-probs where more than one pass follows, forward, backward, optimizer."""
        session: Any = self.parts
        annotated = annotate(session, self.drawn, self.table, reference=None)
        work = PolicyUpdate(session, self.drawn, annotated)
        results = [work.run(part=0, lr=LR) for _ in range(self.parts.recipe.algo.epochs)]
        self.loss = sum(r.sums["loss"] for r in results if r is not None) / len(results)

    def recorded_step(self) -> None:
        """A step that keeps the gradients of its last optimizer update."""
        self.parts.engine.record = True
        self.step()
        self.parts.engine.record = False

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Of the recorded step, by parameter name."""
        return self.parts.engine.gradients

    def weights(self) -> dict[str, torch.Tensor]:
        """Copies by parameter name."""
        return copied(dict(self.policy.hf.named_parameters()))


def copied(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    """fp32 copies on the CPU; without the names that hold None."""
    return {n: t.detach().float().cpu().clone() for n, t in tensors.items() if t is not None}


def _recipe(folder: str, rollouts: SameRollouts, *, dtype: str, epochs: int) -> GrpoRecipe:
    """The settings of TRL's GRPO that differ from our defaults, and no ZeRO: one rank."""
    longest = max(len(a) for group in rollouts.answers for a in group)
    keys = [
        f"model.path={folder}",
        f"model.dtype={dtype}",
        "model.freeze=[]",
        f"algo.epochs={epochs}",
        "algo.advantage={name: grpo, eps: 1e-4}",
        f"rollout.n={len(rollouts.answers[0])}",
        f"rollout.sampling.max_tokens={longest}",
        f"optim.lr={LR}",
        "optim.weight_decay=0",
        f"optim.grad_clip={UNCUT}",
        "zero.stage=0",
    ]
    return load_recipe(GrpoRecipe, overrides=keys)
