"""When the next request may leave: requests a minute, growing waits after failures, and what the server asks for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Protocol


class Stopped(Exception):
    """The run ends: whoever waits for a turn or an answer lets go."""


class Clock(Protocol):
    """Time, so that tests can have their own."""

    def now(self) -> float:
        """Seconds, never going back."""

    def wait(self, seconds: float) -> None:
        """Come back after `seconds`.

        Raises:
            Stopped: the run ends.
        """

    def stop(self) -> None:
        """Wake all that wait."""


class RealClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """See Clock."""
        if self._stop.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """See Clock."""
        self._stop.set()


class Pace:
    """Lets requests of all threads through one by one: `per_minute` at most (0: no limit), none while a server asks to wait."""

    def __init__(self, clock: Clock, *, per_minute: float = 0.0) -> None:
        self._clock = clock
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._lock = threading.Lock()
        self._next = clock.now()

    def turn(self) -> None:
        """Come back when a request may leave.

        Raises:
            Stopped: the run ends.
        """
        while True:
            with self._lock:
                now = self._clock.now()
                if self._next <= now:
                    self._next = now + self._interval
                    return
                missing = self._next - now
            self._clock.wait(missing)

    def hold(self, seconds: float) -> None:
        """Nothing leaves for so long."""
        with self._lock:
            self._next = max(self._next, self._clock.now() + seconds)


def backoff(failures: int, *, base_s: float, dice: random.Random, most_s: float = 60.0) -> float:
    """Seconds to wait after so many failures in a row: base, twice, four times, ..., of which between half and all by chance.

    Example: the third failure with base 1 waits 2 to 4 s.
    """
    whole = min(most_s, base_s * 2.0 ** min(failures - 1, 30))
    return whole * dice.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds that the server asks to wait (a number or a date), None when it does not. `now`: seconds since 1970.

    Source: RFC 9110, section 10.2.3. `retry-after-ms` is what OpenAI and Azure add to it.
    """
    fine = _number(headers.get("retry-after-ms", ""))
    if fine is not None:
        return fine / 1000.0
    value = headers.get("retry-after", "")
    seconds = _number(value)
    return _until(value, now) if seconds is None else seconds


def _number(text: str) -> float | None:
    """A plain decimal that is not negative; `inf`, `1e99` and the like are none."""
    return float(text) if text.strip().replace(".", "", 1).isdecimal() else None


def _until(date: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError):
        return None
