"""The ranks of a run: joining the process group, and the few collectives that the loop needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from vtgrl.core.errors import RunError

T = TypeVar("T")

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""A rank that waits longer for another fails instead of hanging for ever."""


@dataclass(frozen=True)
class World:
    """This process among the ranks. Calls are collective: all ranks, same order."""

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """True on the rank that writes files."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's object, in rank order, on all ranks."""
        if self.size == 1:
            return [value]
        out: list[Any] = [None] * self.size
        dist.all_gather_object(out, value)
        return out

    def broadcast(self, value: T) -> T:
        """Rank 0's object on all ranks."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Key-wise sums over ranks; a key may be missing on some."""
        total: dict[str, float] = {}
        for part in self.gather(dict(values)):
            for key, value in part.items():
                total[key] = total.get(key, 0.0) + value
        return total

    def mean(self, parts: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """Key-wise (sum, count) of every rank -> mean over all ranks; a key may be missing on some, and one that counts
        nothing anywhere has no mean."""
        sums = self.sum({key: part[0] for key, part in parts.items()})
        counts = self.sum({key: part[1] for key, part in parts.items()})
        return {key: sums[key] / count for key, count in counts.items() if count}

    def max(self, value: int) -> int:
        """Largest value over ranks."""
        return max(self.gather(value))

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    def shard(self, items: list[T]) -> list[T]:
        """This rank's items: every size-th, so that the shards differ by one at most."""
        return items[self.rank :: self.size]

    def agree(self, what: str, value: str) -> None:
        """Raise on every rank when ranks hold different values (another recipe, other data).

        Raises:
            RunError: naming `what` and the ranks that differ from rank 0.
        """
        digests = self.gather(hashlib.sha256(value.encode()).hexdigest())
        odd = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if odd:
            raise RunError(f"ranks disagree on {what}: rank {', '.join(map(str, odd))} differ from rank 0; start all with the same files")


def join_world() -> World:
    """Join the process group that torchrun, the deepspeed launcher or `--nproc` made; alone: a group of one.

    gloo is initialised before DeepSpeed sees it, so that DeepSpeed takes it as it is. Alone, no port is opened and the
    environment stays as it was: what this process starts later must not think that it is a rank.
    """
    cuda = torch.cuda.is_available()
    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed insists
    if not cuda:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if not dist.is_initialized():
        alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
        dist.init_process_group("nccl" if cuda else "gloo", timeout=COLLECTIVE_TIMEOUT, **alone)
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    return World(dist.get_rank(), dist.get_world_size(), device)
