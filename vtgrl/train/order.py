"""Which rows a step trains on: a pure function of (data seed, step), so that resuming needs no iterator state.

With a filter between epochs it also depends on the rows that each epoch has been given (vtgrl/train/filter.py keeps those).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from vtgrl.core.errors import DataError
from vtgrl.core.types import Sample
from vtgrl.data.select.rows import sorted_by_ease


class Order(Protocol):
    """What the loop and the schedules ask."""

    @property
    def total_steps(self) -> int:
        """Steps of the run; at most so many when it may end sooner."""

    def finished(self, step: int) -> bool:
        """Whether a run with `step` steps behind it is at its end."""

    def epoch(self, step: int) -> float:
        """Passes done when `step` begins."""

    def position(self, step: int) -> float:
        """Where `step` (0-based) stands on schedules that are `total_steps` long."""

    def batch_at(self, step: int) -> list[int]:
        """Row indices of `step`; none when it is not known yet or never comes."""


def copy_numbers(batch: Sequence[int]) -> list[int]:
    """How often each row of a batch stood in it before: [4, 7, 4] -> [0, 0, 1]."""
    seen: Counter[int] = Counter()
    numbers = []
    for row in batch:
        numbers.append(seen[row])
        seen[row] += 1
    return numbers


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

    def finished(self, step: int) -> bool:
        """Whether `step` steps are all of them."""
        return step >= self.total_steps

    def epoch(self, step: int) -> float:
        """Passes done when `step` begins."""
        return step * self.batch / self.rows

    def position(self, step: int) -> float:
        """The step itself."""
        return float(step)

    def batch_at(self, step: int) -> list[int]:
        """Row indices of `step` (0-based)."""
        begin = step * self.batch
        end = min(begin + self.batch, self.total_rows)
        return [int(shuffled(self.rows, seed=self.seed, epoch=i // self.rows)[i % self.rows]) for i in range(begin, end)]


@dataclass
class EpochOrder:
    """Epochs of their own rows: an epoch ends with its last (maybe short) batch, and the next one's rows are `add`ed then.

    rows: candidates; epochs: how many there will be, or with `steps` as many as these take. Without `steps`, `total_steps` is
    what epochs of all rows would take, and schedules go by the share of the epoch: a run whose epochs get shorter still goes
    through all of them.
    """

    rows: int
    batch: int
    seed: int
    epochs: int
    steps: int = 0
    begins: list[int] = field(default_factory=lambda: [0])
    """First step of every epoch, and the first one behind them."""
    sets: list[tuple[int, ...]] = field(default_factory=list)
    """Row indices of every epoch, as they are trained on."""
    stopped: bool = False

    @property
    def total_steps(self) -> int:
        """`steps` when given, else an upper bound."""
        return self.steps or self.epochs * self._full

    @property
    def known(self) -> int:
        """Steps of the epochs whose rows are known."""
        return self.begins[-1]

    def add(self, rows: Sequence[int], *, shuffle: bool) -> None:
        """Rows of the next epoch, at least one; shuffled anew each epoch, or as they come."""
        assert rows, "an epoch has rows"
        order = shuffled(len(rows), seed=self.seed, epoch=len(self.sets)) if shuffle else range(len(rows))
        self.sets.append(tuple(rows[i] for i in order))
        self.begins.append(self.known + math.ceil(len(rows) / self.batch))

    def stop(self) -> None:
        """No further epoch."""
        self.stopped = True

    def wants_rows(self, step: int) -> bool:
        """Whether `step` begins an epoch that has no rows yet."""
        return step >= self.known and not self.finished(step)

    def finished(self, step: int) -> bool:
        """Whether `step` steps are all of them."""
        if self.steps and step >= self.steps:
            return True
        last = self.stopped or (not self.steps and len(self.sets) >= self.epochs)
        return last and step >= self.known

    def epoch(self, step: int) -> float:
        """Epochs done when `step` begins, the share of the current one included."""
        if step >= self.known:
            return float(len(self.sets))
        index, begin, length = self._place(step)
        return index + (step - begin) / length

    def position(self, step: int) -> float:
        """The step itself when `steps` is given, else by the share of the epoch."""
        if self.steps or step >= self.known:
            return float(step if self.steps else len(self.sets) * self._full)
        index, begin, length = self._place(step)
        return index * self._full + (step - begin) * self._full / length

    def batch_at(self, step: int) -> list[int]:
        """Row indices of `step` (0-based); none of an epoch whose rows are not known yet."""
        if step >= (min(self.known, self.steps) if self.steps else self.known):
            return []
        index, begin, _ = self._place(step)
        first = (step - begin) * self.batch
        return list(self.sets[index][first : first + self.batch])

    @property
    def _full(self) -> int:
        """Steps of an epoch of all rows."""
        return math.ceil(self.rows / self.batch)

    def _place(self, step: int) -> tuple[int, int, int]:
        """Number, first step and steps of the epoch that a known step is in."""
        index = bisect_right(self.begins, step) - 1
        return index, self.begins[index], self.begins[index + 1] - self.begins[index]


def shuffled(count: int, *, seed: int, epoch: int) -> np.ndarray:
    """0 ... count-1 in the order of an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def make_order(recipe: Any, train: Sequence[Sample]) -> Order:
    """The order of the recipe's rows: plain passes, or epochs that a filter gives their rows.

    Raises:
        DataError: a row that the filter cannot judge, or that states no difficulty where the order needs one.
    """
    settings, rule = recipe.train, recipe.data.filter
    if not rule.every:
        return DataOrder(len(train), settings.batch, settings.data_seed, settings.epochs, settings.steps)
    foreign = next((s for s in train if s.task != "vtg" or not s.windows), None)
    if foreign is not None:
        raise DataError(f"row {foreign.id!r} (task {foreign.task!r}) has no true window: data.filter judges grounding rows only")
    order = EpochOrder(len(train), settings.batch, settings.data_seed, settings.epochs, settings.steps)
    easy_first = rule.order == "easy_to_hard"
    order.add(sorted_by_ease(train, seed=0) if easy_first else range(len(train)), shuffle=not easy_first)
    return order
