"""Three-axis rotary positions (M-RoPE: time, height, width) of a prompt with video.

Text tokens have three equal positions. A block of vision tokens starts one after the largest position before it and
spreads over its grid; the text after it continues at the block's LARGEST position + 1 (M-RoPE, arXiv:2409.12191,
section 2.1). transformers 5.19 forgets the time axis there, which is why the family computes positions itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Block:
    """A run of t*h*w vision tokens that begins at `start` in the prompt. `step`: positions between temporal slices."""

    start: int
    t: int
    h: int
    w: int
    step: float = 1.0

    @property
    def size(self) -> int:
        """Tokens in the block."""
        return self.t * self.h * self.w

    def grid(self) -> torch.Tensor:
        """[3, size] int64, relative to the block's first position. A fractional step is cut to an integer only after
        it has been multiplied with the slice number: at 0.75 the slices are at 0, 0, 1, 2, 3, 3, never all at 0."""
        t = (torch.arange(self.t, dtype=torch.float64) * self.step).long()
        axes = torch.meshgrid(t, torch.arange(self.h), torch.arange(self.w), indexing="ij")
        return torch.stack(axes).reshape(3, -1)


def positions(length: int, blocks: Sequence[Block]) -> tuple[torch.Tensor, int]:
    """Positions of a prompt of `length` tokens with `blocks` in order -> ([3, length] int64, next free position)."""
    parts: list[torch.Tensor] = []
    at, free = 0, 0
    for block in blocks:
        free = _add_text(parts, block.start - at, free)
        parts.append(block.grid() + free)
        free = int(parts[-1].max()) + 1
        at = block.start + block.size
    free = _add_text(parts, length - at, free)
    return torch.cat(parts, dim=1), free


def _add_text(parts: list[torch.Tensor], n: int, free: int) -> int:
    assert n >= 0, "vision blocks overlap"
    parts.append((torch.arange(n) + free).expand(3, n))
    return free + n


def block_starts(input_ids: Sequence[int], token_id: int, sizes: Sequence[int]) -> list[int]:
    """Where in a prompt the runs of `sizes` placeholders begin; every placeholder belongs to exactly one run."""
    index = [i for i, token in enumerate(input_ids) if token == token_id]
    assert len(index) == sum(sizes), f"{len(index)} placeholders for {sum(sizes)} vision tokens"
    starts, at = [], 0
    for size in sizes:
        assert index[at + size - 1] - index[at] == size - 1, "a run of placeholders is broken"
        starts.append(index[at])
        at += size
    return starts
