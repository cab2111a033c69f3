"""A live line on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vtgrl.core.log import console, logger
from vtgrl.core.registry import opt, register
from vtgrl.train.monitor_types import Monitor, MonitorContext


@dataclass(frozen=True)
class ConsoleConfig:
    """Which numbers, how often."""

    keys: tuple[str, ...] = opt(
        ("loss", "reward/total", "reward/iou", "reward/format", "kl", "grad_norm", "answer/tokens", "val/miou", "time/step_s"),
        "metrics that are shown, when the step has them",
    )
    every_s: float = opt(10.0, "seconds between plain lines (not on a terminal); the last step is always shown", ge=0)


@register("monitor", "console", config=ConsoleConfig)
def make(context: MonitorContext, *, config: ConsoleConfig) -> Monitor:
    """Progress on stderr: a live line on a terminal, log lines elsewhere."""
    return LiveLine(context, config) if console().is_terminal else PlainLines(context, config)


def line(metrics: Mapping[str, float], keys: tuple[str, ...]) -> str:
    """`loss 0.1234  val/miou 0.5`."""
    return "  ".join(f"{key} {metrics[key]:.4g}" for key in keys if key in metrics)


class PlainLines:
    """At most one line every `every_s` seconds; steps with a validation and the last step always."""

    def __init__(self, context: MonitorContext, config: ConsoleConfig) -> None:
        self.total = context.total_steps
        self.config = config
        self.last = -config.every_s

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a line when it is due."""
        now = time.monotonic()
        validated = any(key.startswith("val/") for key in metrics)
        if now - self.last >= self.config.every_s or step == self.total or validated:
            logger.info("step %d/%d  %s", step, self.total, line(metrics, self.config.keys))
            self.last = now

    def close(self) -> None:
        """Nothing is open."""


class LiveLine:
    """One line that is redrawn; log messages scroll above it."""

    def __init__(self, context: MonitorContext, config: ConsoleConfig) -> None:
        self.config = config
        columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(20), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, TextColumn("{task.description}", markup=False), console=console())
        self.task = self.progress.add_task("", total=context.total_steps)
        self.progress.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Redraw."""
        self.progress.update(self.task, completed=step, description=line(metrics, self.config.keys))

    def close(self) -> None:
        """Leave the last line standing."""
        self.progress.stop()
