"""TensorBoard event files in RUN/tensorboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vtgrl.core.registry import register
from vtgrl.train.monitor_types import Monitor, MonitorContext

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@register("monitor", "tensorboard")
def make(context: MonitorContext, *, config: object) -> Monitor:
    """TensorBoard event files; after a resume the later value of a step counts."""
    return TensorBoard(context)


class TensorBoard:
    """Opens its file with the first step, so that readers drop what an earlier start wrote for it and later steps."""

    def __init__(self, context: MonitorContext) -> None:
        self.folder = context.run_dir / "tensorboard"
        self.writer: SummaryWriter | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar a metric."""
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder), purge_step=step)
        for key, value in metrics.items():
            self.writer.add_scalar(key, value, step)

    def close(self) -> None:
        """Flush the file."""
        if self.writer is not None:
            self.writer.close()
