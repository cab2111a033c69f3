"""The filter between two epochs: rows that the policy has solved, or has no chance at, are left out. Pure: no torch, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vtgrl.core.seeds import derive_seed


@dataclass(frozen=True)
class Kept:
    """rows: indices of the kept rows, easy to hard. The others by reason: solved (p too high), hopeless (p too low), thinned
    (more than k were left)."""

    rows: tuple[int, ...]
    solved: int
    hopeless: int
    thinned: int


def keep_rows(p: Sequence[float], *, ids: Sequence[str], above: float = 0.0, up_to: float = 0.7, k: int = 0, seed: int = 0) -> Kept:
    """Rows with above < p <= up_to, easy to hard; of more than k (0: no limit), k evenly spaced by rank."""
    ranked = [i for i in easy_to_hard(p, ids=ids, seed=seed) if above < p[i] <= up_to]
    rows = [ranked[place] for place in evenly(len(ranked), k)] if 0 < k < len(ranked) else ranked
    solved = sum(value > up_to for value in p)
    return Kept(tuple(rows), solved, len(p) - solved - len(ranked), len(ranked) - len(rows))


def easy_to_hard(p: Sequence[float], *, ids: Sequence[str], seed: int = 0) -> list[int]:
    """All rows, high p first. Equal ones in an order drawn from `seed` and their ids: with another seed each epoch, thinning does
    not always hit the same of them."""
    return sorted(range(len(p)), key=lambda i: (-p[i], derive_seed("filter", seed, ids[i]), ids[i]))


def evenly(n: int, k: int) -> list[int]:
    """k different places of 0 ... n-1 (k <= n): the middles of k equal stretches.

    Example: evenly(10, 2) == [2, 7]
    """
    return [(2 * i + 1) * n // (2 * k) for i in range(k)]
