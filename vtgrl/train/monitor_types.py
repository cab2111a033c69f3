"""What a monitor is given and has to do. metrics.jsonl is the record of a run; monitors only show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vtgrl.core.schema import GrpoRecipe, SftRecipe


@dataclass(frozen=True)
class MonitorContext:
    """`run_dir`: the run folder, which a resumed run shares with the first start."""

    run_dir: Path
    recipe: SftRecipe | GrpoRecipe
    total_steps: int

    @property
    def name(self) -> str:
        """The run's name."""
        return self.recipe.log.name or self.run_dir.resolve().name


class Monitor(Protocol):
    """`@register("monitor", NAME, config=...) def make(context, *, config) -> Monitor`; lives on rank 0 only."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of `step` (steps may be repeated after a resume; the later call counts)."""

    def close(self) -> None:
        """Flush."""
