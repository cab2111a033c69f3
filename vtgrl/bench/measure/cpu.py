"""Time of two ways to do the same work: CPU time on one thread; with a GPU, the clock on the wall."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch


def now() -> float:
    """CPU seconds of this process: time asleep does not count. With a GPU, seconds on the wall once it has done all its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def interleaved(ways: Mapping[str, Callable[[], object]], *, repeats: int = 5, clock: Callable[[], float] = now) -> dict[str, float]:
    """Seconds of each way, by name: the least of `repeats` runs.

    All ways run in every round, in one order and then in the other, so that a machine that slows down slows all of them.
    One torch thread. `clock`: `now`, or `child_time`.
    """
    least = dict.fromkeys(ways, float("inf"))
    with _one_thread():
        for round_ in range(repeats):
            for name in ways if round_ % 2 == 0 else reversed(list(ways)):
                least[name] = min(least[name], _seconds(ways[name], clock))
    return least


def child_time() -> float:
    """CPU seconds, user and system, of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    work()
    return clock() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
