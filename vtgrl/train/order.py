"""Which rows a step trains on: a pure function of (data seed, step), so that resuming needs no iterator state."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DataOrder:
    """Shuffled passes over `rows` rows, `batch` a step, one after the other: a batch may straddle two passes and no row is dropped.

    The order depends on `seed` (the recipe's data_seed) and on nothing else.
    """

    rows: int
    batch: int
    seed: int
    epochs: int
    steps: int = 0

    @property
    def total_steps(self) -> int:
        """Steps of the run: `steps` when given, else what `epochs` passes take (the last batch may be short)."""
        return self.steps or math.ceil(self.epochs * self.rows / self.batch)

    @property
    def total_rows(self) -> int:
        """Rows drawn over the run, repeats counted."""
        return self.total_steps * self.batch if self.steps else self.epochs * self.rows

    def epoch(self, step: int) -> float:
        """Passes done when `step` begins."""
        return step * self.batch / self.rows

    def batch_at(self, step: int) -> list[int]:
        """Row indices of `step` (0-based)."""
        begin = step * self.batch
        end = min(begin + self.batch, self.total_rows)
        return [int(self._permutation(i // self.rows)[i % self.rows]) for i in range(begin, end)]

    def _permutation(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(self.rows)
