"""Ranked windows: mAP, R@k and R1 of submissions in the QVHighlights form, vectorised over all queries.

Shape legend: Q queries, K predicted windows, W true windows, T IoU thresholds. Padded entries are marked, never counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtgrl.core.types import Window
from vtgrl.eval.iou import hull_iou, pad_windows

IOU_THRESHOLDS = tuple(round(0.5 + 0.05 * i, 2) for i in range(10))
MAX_WINDOWS = 10
"""A list is cut to this many windows before it is sorted by score."""

FEW = 2


@dataclass(frozen=True, slots=True)
class Ranked:
    """One row of a submission: [start, end, score] in file order (score None: the row gave none), and clip scores."""

    windows: tuple[tuple[float, float, float | None], ...]
    saliency: tuple[float, ...] | None = None

    @property
    def invalid(self) -> int:
        """Windows that are reversed, empty of meaning (NaN, infinite) or without length."""
        return sum(not is_valid(w) for w in self.windows)


def is_valid(window: tuple[float, float, float | None]) -> bool:
    """Finite, and the end after the start."""
    return math.isfinite(window[0]) and math.isfinite(window[1]) and window[1] > window[0]


def by_score(windows: Sequence[tuple[float, float, float | None]]) -> list[tuple[float, float, float | None]]:
    """Highest score first; equal scores and rows without scores keep the file's order."""
    return sorted(windows, key=lambda w: -w[2] if w[2] is not None else 0.0)


def true_iou(pred_QK2: np.ndarray, truth_QW2: np.ndarray) -> np.ndarray:
    """[Q, K, W] overlap / (both lengths - overlap), lengths signed: 0/0 is NaN, as in the official evaluator."""
    start, end = pred_QK2[:, :, None, 0], pred_QK2[:, :, None, 1]
    first, last = truth_QW2[:, None, :, 0], truth_QW2[:, None, :, 1]
    overlap = np.maximum(0.0, np.minimum(end, last) - np.maximum(start, first))
    union = (end - start) + (last - first) - overlap
    with np.errstate(divide="ignore", invalid="ignore"):
        return overlap / union


def average_precision(
    windows: Sequence[Sequence[Window]], truth: Sequence[Sequence[Window]], *, thresholds: Sequence[float] = IOU_THRESHOLDS
) -> np.ndarray:
    """Interpolated (VOC 2011) average precision of every query at every IoU threshold, [Q, T].

    Args:
        windows: predictions of each query, best first; a query without any has AP 0.
        truth: true windows of each query, at least one.

    A prediction takes the best true window that is still free and overlaps enough. A NaN overlap (see `true_iou`) counts
    as enough at every threshold: callers that do not reproduce the official evaluator leave such windows out.
    """
    ap_QT = np.zeros((len(windows), len(thresholds)))
    for group in _by_width(truth):
        pred_QK2, real_QK = pad_windows([windows[q] for q in group])
        truth_QW2, real_QW = pad_windows([truth[q] for q in group])
        hit_QTK = _match(true_iou(pred_QK2, truth_QW2), real_QK, real_QW, np.asarray(thresholds))
        ap_QT[group] = _area(hit_QTK, real_QK, real_QW.sum(axis=1))
    return ap_QT


def _by_width(truth: Sequence[Sequence[Window]]) -> list[list[int]]:
    """Queries with few true windows apart from those with many, so that little is padded."""
    few = [q for q, windows in enumerate(truth) if len(windows) <= FEW]
    many = [q for q, windows in enumerate(truth) if len(windows) > FEW]
    return [group for group in (few, many) if group]


def _match(iou_QKW: np.ndarray, real_QK: np.ndarray, real_QW: np.ndarray, thresholds_T: np.ndarray) -> np.ndarray:
    """Greedy assignment in order of rank -> true positives [Q, T, K]."""
    Q, K, _ = iou_QKW.shape
    free_QTW = np.repeat(real_QW[:, None, :], len(thresholds_T), axis=1)
    hit_QTK = np.zeros((Q, len(thresholds_T), K), dtype=bool)
    rank_QKW = _preference(iou_QKW)
    for k in range(K):
        enough_QTW = ~(iou_QKW[:, None, k, :] < thresholds_T[None, :, None])
        usable_QTW = enough_QTW & free_QTW & real_QK[:, k, None, None]
        best_QT = np.where(usable_QTW, rank_QKW[:, None, k, :], -1).argmax(axis=2)
        hit_QT = usable_QTW.any(axis=2)
        hit_QTK[:, :, k] = hit_QT
        q, t = np.nonzero(hit_QT)
        free_QTW[q, t, best_QT[q, t]] = False
    return hit_QTK


def _preference(iou_QKW: np.ndarray) -> np.ndarray:
    """Place of each true window in ascending order of IoU, NaN last: the highest place is tried first."""
    order = np.argsort(iou_QKW, axis=2, kind="stable")
    return np.argsort(order, axis=2, kind="stable")


def _area(hit_QTK: np.ndarray, real_QK: np.ndarray, positives_Q: np.ndarray) -> np.ndarray:
    """Area under the interpolated precision-recall steps, [Q, T]."""
    found = np.cumsum(hit_QTK, axis=2)
    given = np.maximum(np.cumsum(real_QK, axis=1), 1)[:, None, :]
    precision = np.where(real_QK[:, None, :], found / given, 0.0)
    envelope = np.maximum.accumulate(precision[:, :, ::-1], axis=2)[:, :, ::-1]
    return (envelope * hit_QTK).sum(axis=2) / np.maximum(positives_Q, 1)[:, None]


def best_hull(windows: Sequence[Window | None], truth: Sequence[Sequence[Window]]) -> np.ndarray:
    """Best hull IoU of one window a query with its true windows, [Q]; 0 without a window."""
    truth_QW2, real_QW = pad_windows(truth)
    pred_Q12 = np.array([w if w is not None else (0.0, 0.0) for w in windows], dtype=np.float64).reshape(-1, 1, 2)
    given_Q1 = np.array([w is not None for w in windows], dtype=bool).reshape(-1, 1)
    return np.where(real_QW & given_Q1, hull_iou(pred_Q12, truth_QW2), 0.0).max(axis=1)


def recall_at(
    k: int, windows: Sequence[Sequence[Window]], truth: Sequence[Sequence[Window]], *, thresholds: Sequence[float]
) -> dict[float, np.ndarray]:
    """threshold -> [Q] whether one of the first k windows has hull IoU >= threshold with a true window."""
    best_Q = np.zeros(len(windows))
    for place in range(k):
        best_Q = np.maximum(best_Q, best_hull([w[place] if place < len(w) else None for w in windows], truth))
    return {t: best_Q >= t for t in thresholds}
