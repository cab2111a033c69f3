"""Ctrl-C and SIGTERM end a run after the step, with a checkpoint; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vtgrl.core.log import logger


class StopFlag:
    """Set by the first signal."""

    def __init__(self) -> None:
        self.stop = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        logger.warning("%s: finishing this step, then a checkpoint; once more to stop at once", signal.Signals(signum).name)


@contextmanager
def stop_on_signal() -> Iterator[StopFlag]:
    """While active, SIGINT and SIGTERM set the flag instead of raising."""
    flag = StopFlag()
    old = {s: signal.signal(s, flag._handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)
