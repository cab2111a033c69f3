"""Bootstrap over videos: queries about one video are resampled together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_CELLS = 20_000_000


def resampled_means(values_NM: np.ndarray, groups: Sequence[Sequence[int]], *, draws: int, seed: int = 0) -> np.ndarray:
    """Means [draws, M] of the columns over videos drawn with replacement (as many as there are).

    Args:
        values_NM: one row a query. groups: row numbers of each video.
    """
    sums_VM = np.array([values_NM[list(rows)].sum(axis=0) for rows in groups])
    counts_V = np.array([len(rows) for rows in groups], dtype=np.float64)
    rng = np.random.default_rng(seed)
    videos = len(groups)
    means: list[np.ndarray] = []
    step = max(1, _CELLS // videos)
    for first in range(0, draws, step):
        size = min(step, draws - first)
        times_BV = rng.multinomial(videos, np.full(videos, 1.0 / videos), size=size).astype(np.float64)
        means.append((times_BV @ sums_VM) / (times_BV @ counts_V)[:, None])
    return np.concatenate(means)


def interval(means: np.ndarray, *, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of a column of resampled means."""
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
