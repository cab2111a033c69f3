"""Weights & Biases. Offline unless asked otherwise: no network, no account; `wandb sync RUN/wandb/offline-run-*` sends it later."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtgrl.core.jsonl import atomic_write
from vtgrl.core.recipe import to_plain
from vtgrl.core.registry import opt, register
from vtgrl.train.monitor_types import Monitor, MonitorContext


@dataclass(frozen=True)
class WandbConfig:
    """Project and run name are `log.project` and `log.name`."""

    mode: Literal["env", "offline", "online"] = opt("env", "env: what WANDB_MODE says, offline when it is not set")
    entity: str = opt("", "team or user; empty: your default")


@register("monitor", "wandb", config=WandbConfig)
def make(context: MonitorContext, *, config: WandbConfig) -> Monitor:
    """Weights & Biases; works offline, and a resumed run keeps its id."""
    return Wandb(context, config)


def run_id(run_dir: Path) -> str:
    """The wandb id of this run folder: made on the first start, kept in wandb_id.txt for the next."""
    path = run_dir / "wandb_id.txt"
    if not path.is_file():
        atomic_write(path, secrets.token_hex(4))
    return path.read_text(encoding="utf-8").strip()


class Wandb:
    """`step` is an ordinary metric and the x axis of all others: wandb drops rows whose own step goes back after a resume."""

    def __init__(self, context: MonitorContext, config: WandbConfig) -> None:
        import wandb  # slow, and only some runs want it

        self.run = wandb.init(
            project=context.recipe.log.project,
            entity=config.entity or None,
            name=context.name,
            id=run_id(context.run_dir),
            resume="allow",
            dir=str(context.run_dir),
            config=to_plain(context.recipe),
            mode=os.environ.get("WANDB_MODE", "offline") if config.mode == "env" else config.mode,  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, x_disable_stats=True, disable_git=True, disable_code=True),
        )
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row."""
        self.run.log({"step": step, **metrics})

    def close(self) -> None:
        """Flush; offline files stay in RUN/wandb."""
        self.run.finish()
