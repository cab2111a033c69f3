"""Overlap of time windows, the three definitions that published evaluators use.

`hull`: overlap / (latest end - earliest start); equals the true IoU when the windows overlap and 0 otherwise.
`merged`: both sets merged to disjoint windows, overlap / union. `pairwise`: sum of all pairwise overlaps over the summed
lengths less the overlaps; repeated or overlapping predictions make it exceed 1 (UniTime).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtgrl.core.types import Window


def hull_iou(pred: np.ndarray, truth: np.ndarray, *, empty: float = 0.0) -> np.ndarray:
    """Hull IoU of broadcastable [..., 2] windows; `empty` where the hull has no length (0/0).

    A window whose end lies before its start overlaps nothing.
    """
    start, end = pred[..., 0], pred[..., 1]
    first, last = truth[..., 0], truth[..., 1]
    overlap = np.maximum(0.0, np.minimum(end, last) - np.maximum(start, first))
    hull = np.maximum(end, last) - np.minimum(start, first)
    positive = hull > 0
    return np.where(positive, overlap / np.where(positive, hull, 1.0), empty)


def merge(windows: Sequence[Window]) -> list[Window]:
    """Disjoint windows in order of time that cover the same seconds; windows without length are dropped."""
    merged: list[Window] = []
    for start, end in sorted(w for w in windows if w[1] > w[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def merged_iou(pred: Sequence[Window], truth: Sequence[Window]) -> float:
    """IoU of the covered seconds, always in [0, 1]; 0 when nothing is covered at all."""
    a, b = merge(pred), merge(truth)
    overlap = _pairwise_overlap(a, b)
    union = _length(a) + _length(b) - overlap
    return overlap / union if union > 0 else 0.0


def pairwise_iou(pred: Sequence[Window], truth: Sequence[Window]) -> float:
    """Sum of pairwise overlaps / (summed lengths - overlaps), lengths signed; 0 when that is not finite."""
    overlap = _pairwise_overlap(pred, truth)
    union = _length(pred) + _length(truth) - overlap
    return overlap / union if union != 0 else 0.0


def _pairwise_overlap(a: Sequence[Window], b: Sequence[Window]) -> float:
    return sum(max(0.0, min(e, t) - max(s, f)) for s, e in a for f, t in b)


def _length(windows: Sequence[Window]) -> float:
    return sum(end - start for start, end in windows)


def pad_windows(windows: Sequence[Sequence[Window]]) -> tuple[np.ndarray, np.ndarray]:
    """Ragged windows -> ([N, W, 2] float64 padded with 0, [N, W] bool of the real ones); W is at least 1."""
    counts = np.fromiter(map(len, windows), dtype=np.int64, count=len(windows))
    width = max(1, int(counts.max(initial=0)))
    real = np.arange(width) < counts[:, None]
    padded = np.zeros((len(windows), width, 2))
    if counts.sum():
        padded[real] = np.array([w for group in windows for w in group], dtype=np.float64)
    return padded, real
