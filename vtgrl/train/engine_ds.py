"""The DeepSpeed engine around the policy: many backward passes, one optimizer step, any ZeRO stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtgrl.core.schema import OptimConfig
from vtgrl.model.policy import Policy
from vtgrl.model.types import PackedRow, PolicyOutput
from vtgrl.train.world import World


@dataclass(frozen=True)
class StepInfo:
    """`skipped`: the gradient was not finite, so weights and moments are as before. `grad_norm` is before clipping."""

    grad_norm: float
    lr: float
    skipped: bool


def lr_at(step: float, *, optim: OptimConfig, total_steps: int) -> float:
    """Learning rate of `step` (0-based, a fraction between two): linear warm-up, then constant, linear or cosine to zero."""
    if step < optim.warmup_steps:
        return optim.lr * min(1.0, (step + 1) / optim.warmup_steps)
    left = total_steps - optim.warmup_steps
    done = min(1.0, (step - optim.warmup_steps) / left) if left > 0 else 1.0
    if optim.schedule == "linear":
        return optim.lr * (1.0 - done)
    if optim.schedule == "cosine":
        return optim.lr * 0.5 * (1.0 + math.cos(math.pi * done))
    return optim.lr


def start_deepspeed(world: World) -> Any:
    """The deepspeed module, joined to the process group that is there already.

    On a CPU its shared-memory collectives are switched off: DeepSpeed would compile them for minutes at the first start.
    """
    import deepspeed

    if world.device.type == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="nccl" if world.device.type == "cuda" else "gloo", verbose=False)
    return deepspeed


class DsEngine:
    """Forward and backward one packed row at a time; `step` once all rows of an optimizer step are done.

    Every rank makes the same number of calls (a rank with less work passes the empty row).
    """

    def __init__(self, policy: Policy, *, config: dict[str, Any], world: World) -> None:
        deepspeed = start_deepspeed(world)
        trainable = [p for p in policy.parameters() if p.requires_grad]
        # DeepSpeed works on its own copy of the settings: it edits them.
        self.engine, *_ = deepspeed.initialize(model=policy, model_parameters=trainable, config={**config})
        self.policy = policy
        self.world = world
        self.stage: int = config["zero_optimization"]["stage"]

    def forward(self, row: PackedRow, *, temperature: float, entropy: bool = False) -> PolicyOutput:
        """Log-probs of the row's answers, with a gradient unless inside `torch.no_grad`."""
        return self.engine(row, temperature=temperature, entropy=entropy)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add this row's gradient. DeepSpeed averages over ranks; our losses are shares of a global sum, so undo that."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * self.world.size, scale_wrt_gas=False)

    def step(self, *, lr: float) -> StepInfo:
        """One optimizer step, or none when the gradient is not finite."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = lr
        norm = self._unsharded_norm() if self.stage == 0 else None
        if norm is not None and not math.isfinite(norm):
            self.engine.zero_grad()
            self.engine.optimizer.zero_grad()
            return StepInfo(norm, lr, skipped=True)
        self.engine.step()
        skipped = not self.engine.was_step_applied()
        raw = norm if norm is not None else self.engine.get_global_grad_norm()
        return StepInfo(math.nan if skipped or raw is None else float(raw), lr, skipped)

    def _unsharded_norm(self) -> float:
        grads = [p.grad for p in self.policy.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def save(self, folder: Path, *, tag: str) -> None:
        """Write every rank's shards (collective)."""
        self.engine.save_checkpoint(str(folder), tag=tag, save_latest=False)

    def load(self, folder: Path, *, tag: str) -> None:
        """Read every rank's shards (collective).

        Raises:
            OSError: there are none; DeepSpeed itself would only log it and go on with the start model.
        """
        found, _ = self.engine.load_checkpoint(str(folder), tag=tag)
        if found is None:
            raise FileNotFoundError(f"no shards in {folder / tag}")

    def evaluating(self, fn: Callable[[], Any]) -> Any:
        """Run `fn` without gradients and with dropout off."""
        was = self.engine.training
        self.engine.eval()
        try:
            with torch.no_grad():
                return fn()
        finally:
            self.engine.train(was)
