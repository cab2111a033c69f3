"""Peak memory of a piece of work, measured in a process of its own so that nothing else has grown it before."""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vtgrl.core.errors import RunError


@dataclass(frozen=True)
class PeakMemory:
    """Bytes at the peak above the state before the work.

    tracked: tensors made by torch operations (scratch inside a kernel is not seen). resident: the process, as Linux counts
    it (VmHWM).
    """

    tracked: int
    resident: int


def peak_memory(target: str, /, **kwargs: Any) -> PeakMemory:
    """Measure `target` in a fresh process with one thread (Linux).

    Args:
        target: "package.module:function". `function(**kwargs)` prepares everything (it may warm up) and returns the work, a
            function without arguments; only the work is measured, and what it returns lives until the peak is read.
        kwargs: JSON values.

    Raises:
        RunError: the process failed; holds its last lines.
    """
    command = [sys.executable, "-P", "-m", __name__, target, json.dumps(kwargs)]
    # Large blocks come from the system and go back at once: the peak is the tensors', not that of malloc's history.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RunError(f"measuring {target} failed (exit {done.returncode}): {' | '.join(done.stderr.strip().splitlines()[-3:])}")
    return PeakMemory(**json.loads(done.stdout.splitlines()[-1]))


def measure(work: Callable[[], object]) -> PeakMemory:
    """Peak of `work()` in this process: `resident` means something only when nothing was freed here before."""
    with TensorTracker():  # what torch loads when it is first used is not the work's
        torch.ones(1, requires_grad=True).exp().sum().backward()
    gc.collect()  # garbage of the preparation that dies during the work would hide as much of its growth
    with suppress(OSError):  # a sandbox may refuse; then a peak below an earlier one goes unseen
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew from what is resident now
    before = _high_water()
    with TensorTracker() as tracker:
        result = work()
    after = _high_water()
    del result
    return PeakMemory(tracker.peak, after - before)


class TensorTracker(TorchDispatchMode):
    """Inside, bytes of the tensors that operations make: `now` alive, and `peak`. A storage counts once, until it dies."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._live: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {id(s) for s in _storages((args, kwargs))}
        for storage in _storages(out):
            if id(storage) not in given and id(storage) not in self._live:
                self._add(storage)
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def died(_: Any) -> None:
            self.now -= size
            del self._live[key]

        self._live[key] = weakref.ref(storage, died)
        self.now += size
        self.peak = max(self.peak, self.now)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _main(target: str, kwargs: str) -> None:
    module, _, function = target.partition(":")
    torch.set_num_threads(1)
    work = getattr(importlib.import_module(module), function)(**json.loads(kwargs))
    peak = measure(work)
    sys.stdout.write("\n" + json.dumps(asdict(peak)) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
