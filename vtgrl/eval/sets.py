"""Metrics for answers that name several moments: temporal precision, recall and F1 by optimal matching (OMTG-Bench)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtgrl.core.types import Window
from vtgrl.eval.iou import merged_iou
from vtgrl.eval.summary import THRESHOLDS

_FAR = 1e18


def set_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over all queries: tIoU (merged sets), C-Acc (as many moments as true ones), tP, tR and tF1 at each threshold,
    EtF1 = C-Acc x mean tF1 of a query.

    Args:
        rows: scored rows whose `pred` is a list of windows, one window, or None.
    """
    values = [set_scores(_windows(row["pred"]), [(w[0], w[1]) for w in row["windows"]]) for row in rows]
    return {name: float(np.mean([v[name] for v in values])) for name in values[0]} if values else {}


def _windows(pred: Any) -> list[Window]:
    if not pred:
        return []
    return [(w[0], w[1]) for w in pred] if isinstance(pred[0], (list, tuple)) else [(pred[0], pred[1])]


def set_scores(pred: Sequence[Window], truth: Sequence[Window], *, thresholds: Sequence[float] = THRESHOLDS) -> dict[str, float]:
    """The same for one query."""
    scores = {"tIoU": merged_iou(pred, truth), "C-Acc": float(len(pred) == len(truth))}
    matched = matched_ious(pred, truth)
    for t in thresholds:
        hits = sum(iou >= t for iou in matched)
        precision, recall = (hits / len(w) if w else 0.0 for w in (pred, truth))
        both = precision + recall
        scores |= {f"tP@{t}": precision, f"tR@{t}": recall, f"tF1@{t}": 2 * precision * recall / both if both else 0.0}
    scores["EtF1"] = scores["C-Acc"] * float(np.mean([scores[f"tF1@{t}"] for t in thresholds]))
    return scores


def matched_ious(pred: Sequence[Window], truth: Sequence[Window]) -> list[float]:
    """IoUs of the one-to-one matching with the largest sum."""
    if not pred or not truth:
        return []
    iou_KW = np.array([[merged_iou([p], [t]) for t in truth] for p in pred])
    if len(pred) > len(truth):
        iou_KW = iou_KW.T
    return [float(iou_KW[i, j]) for i, j in enumerate(best_assignment(-iou_KW))]


def best_assignment(cost_RC: np.ndarray) -> list[int]:
    """Column of each row in the cheapest one-to-one assignment, R <= C: shortest augmenting paths with potentials (the
    Hungarian method, Kuhn 1955, in Jonker and Volgenant's form), O(R^2 C)."""
    rows, cols = cost_RC.shape
    row_price, col_price = np.zeros(rows + 1), np.zeros(cols + 1)
    owner = np.zeros(cols + 1, dtype=int)  # row (from 1) that holds a column (from 1); column 0 is the start of a path
    for row in range(1, rows + 1):
        owner[0], col = row, 0
        shortest, came_from = np.full(cols + 1, _FAR), np.zeros(cols + 1, dtype=int)
        done = np.zeros(cols + 1, dtype=bool)
        while owner[col]:
            done[col] = True
            held = owner[col]
            reduced = cost_RC[held - 1] - row_price[held] - col_price[1:]
            better = ~done[1:] & (reduced < shortest[1:])
            shortest[1:][better], came_from[1:][better] = reduced[better], col
            step = int(np.where(done[1:], _FAR, shortest[1:]).argmin()) + 1
            delta = shortest[step]
            row_price[owner[done]] += delta
            col_price[done] -= delta
            shortest[1:][~done[1:]] -= delta
            col = step
        while col:
            owner[col], col = owner[came_from[col]], came_from[col]
    result = [0] * rows
    for column in range(1, cols + 1):
        if owner[column]:
            result[owner[column] - 1] = column - 1
    return result
