"""Time of a step and of parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vtgrl.bench.measure.cpu import now


class Clock:
    """Seconds between `start` and `stop`, and of the named parts in between."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._parts: dict[str, float] = {}

    def start(self) -> None:
        """Begin anew."""
        self._parts = {}
        self._begin = now()

    def stop(self) -> dict[str, float]:
        """Seconds since `start` as "whole", and of every part."""
        return {"whole": now() - self._begin, **self._parts}

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Add the time inside to the part `name`."""
        begin = now()
        try:
            yield
        finally:
            self._parts[name] = self._parts.get(name, 0.0) + now() - begin
