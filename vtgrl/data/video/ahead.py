"""Results made ahead of need in threads, bounded in number and in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Bound:
    """What may wait to be fetched: `count` results of together `total` bytes. One that is being made counts as `each` bytes."""

    count: int
    total: int
    each: int


class Ahead(Generic[K, T]):
    """Makes what was announced, in order, until the bound is reached; goes on when a result is taken.

    `make(key)` gives a result and its bytes. One result is always made, however large.
    """

    def __init__(self, make: Callable[[K], tuple[T, int]], *, threads: int, bound: Bound) -> None:
        self._make, self._bound = make, bound
        self._pool = ThreadPoolExecutor(threads, "vtgrl-ahead")
        self._lock = threading.RLock()  # a callback of a future may run in the thread that cancels it
        self._waiting: list[K] = []
        self._begun: OrderedDict[K, Future[tuple[T, int]]] = OrderedDict()
        self._dropped: list[Future[tuple[T, int]]] = []

    def announce(self, keys: Iterable[K]) -> None:
        """What will be taken next, in order. Replaces what was announced before."""
        keys = list(dict.fromkeys(keys))
        with self._lock:
            self._waiting = []
            for key in [k for k in self._begun if k not in set(keys)]:
                self._drop(self._begun.pop(key))
            self._waiting = [k for k in keys if k not in self._begun]
            self._advance()

    def take(self, key: K) -> T | None:
        """The result, waited for when it is being made; None when it was not begun: make it yourself.

        Raises:
            whatever making it raised.
        """
        with self._lock:
            future = self._begun.get(key)
            if future is None:
                if key in self._waiting:
                    self._waiting.remove(key)
                return None
        try:
            return future.result()[0]
        except CancelledError:  # another thread has announced other keys meanwhile
            return None
        finally:
            with self._lock:
                self._begun.pop(key, None)
                self._advance()

    @property
    def begun(self) -> list[K]:
        """What waits to be taken or is being made, in order."""
        with self._lock:
            return list(self._begun)

    @property
    def held(self) -> int:
        """Bytes of results that wait, and at most of those that are being made."""
        with self._lock:
            self._dropped = [future for future in self._dropped if not future.done()]
            return sum(map(self._bytes, self._begun.values())) + self._bound.each * len(self._dropped)

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._waiting = []
            self._begun.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _advance(self) -> None:
        """Begin as much as the bound allows. The lock is held."""
        while self._waiting and len(self._begun) < self._bound.count:
            if self._begun and self.held + self._bound.each > self._bound.total:
                return
            key = self._waiting.pop(0)
            self._begun[key] = future = self._pool.submit(self._make, key)
            future.add_done_callback(self._made)

    def _made(self, _: Future[tuple[T, int]]) -> None:
        """A result often takes less than it might have."""
        with self._lock:
            self._advance()

    def _bytes(self, future: Future[tuple[T, int]]) -> int:
        if not future.done():
            return self._bound.each
        return 0 if future.cancelled() or future.exception() else future.result()[1]

    def _drop(self, future: Future[tuple[T, int]]) -> None:
        """Nobody wants it any more, but one that is being made takes memory until it is."""
        if not future.cancel():
            self._dropped.append(future)
