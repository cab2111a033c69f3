"""Rows drawn by difficulty: without replacement, a Gaussian of p as weight. Pure: no torch, no files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vtgrl.core.seeds import derive_seed

_SEEDS = 2**31
"""`derive_seed` gives one of so many."""


@dataclass(frozen=True)
class Drawn:
    """rows: indices of the chosen rows, ascending. eligible: how many rows could be chosen. asked: k."""

    rows: tuple[int, ...]
    eligible: int
    asked: int

    @property
    def short(self) -> bool:
        """There were fewer eligible rows than asked for: all of them are in."""
        return self.eligible < self.asked


def log_weight(p: float, *, mu: float, sigma: float) -> float:
    """Log of exp(-(p - mu)^2 / (2 sigma^2)). In logs, so that a narrow bell cannot underflow to weight 0."""
    return -((p - mu) ** 2) / (2.0 * sigma**2)


def draw_rows(
    p: Sequence[float], *, ids: Sequence[str], k: int, mu: float = 0.3, sigma: float = 0.2, above: float = 0.0, seed: int = 0
) -> Drawn:
    """Draw k rows with p > `above`, one after the other without replacement, each with the Gaussian's weight.

    The k largest log-weights plus Gumbel noise are such a draw (Efraimidis and Spirakis 2006; Kool et al., arXiv:1903.06059).
    A row's noise comes from `seed` and its id alone: the order of the file does not matter, and a row that is added or taken
    away moves one place at most. Fewer eligible rows than k: all of them.
    """
    eligible = [i for i, value in enumerate(p) if value > above]
    keys = {i: log_weight(p[i], mu=mu, sigma=sigma) + _gumbel(seed, ids[i]) for i in eligible}
    best = sorted(eligible, key=lambda i: (-keys[i], ids[i]))[:k]
    return Drawn(tuple(sorted(best)), len(eligible), k)


def _gumbel(seed: int, name: str) -> float:
    uniform = (derive_seed("select", seed, name) + 0.5) / _SEEDS
    return -math.log(-math.log(uniform))
