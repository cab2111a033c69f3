"""A line now and then while queries are answered."""

from __future__ import annotations

import time
from collections.abc import Callable

from vtgrl.core.log import logger

_EVERY_SECONDS = 10.0


def show_progress() -> Callable[[int, int], None]:
    """For `evaluate`: logs (done, total) at most every ten seconds, and the end."""
    started = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= _EVERY_SECONDS:
            last = now
            logger.info("%d of %d queries answered in %.0f s", done, total, now - started)

    return show
