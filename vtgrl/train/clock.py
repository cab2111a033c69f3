"""Seconds of a step by part, for the log."""

from __future__ import annotations

import time


class Clock:
    """`lap(name)` books the time since the last lap under `time/NAME_s`."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End the part `name`."""
        now = time.perf_counter()
        self.laps[f"time/{name}_s"] = now - self._last
        self._last = now
