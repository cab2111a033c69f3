"""From scored rows to numbers: a flat dict for logs, and the JSON document that `vtgrl eval` writes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtgrl.eval.types import FAILURES, FLAGS, MISSING, ThresholdOp

THRESHOLDS = (0.3, 0.5, 0.7)
SCHEMA_VERSION = 1

Rows = Sequence[Mapping[str, Any]]


def summarise(rows: Rows, *, threshold_op: ThresholdOp = "ge") -> dict[str, float]:
    """Flat numbers of scored rows: `miou`, `r1@0.3|0.5|0.7`, each with `_se`; `n`, `missing`, `unparsed`, `truncated`.

    Every query counts: one without output or without a window has IoU 0. When some are missing, `*_found` repeats the
    means over those that have an output. Standard errors are clustered by video (absent with fewer than two videos).
    """
    flat: dict[str, float] = {}
    for name, value in means(rows, threshold_op=threshold_op).items():
        flat[name.lower()] = value
    for name, value in standard_errors(rows, threshold_op=threshold_op).items():
        flat[f"{name.lower()}_se"] = value
    found = [row for row in rows if row["kind"] != MISSING]
    flat |= {"n": float(len(rows)), "missing": float(len(rows) - len(found))}
    flat["unparsed"] = float(sum(failures(rows).values()))
    flat["truncated"] = float(sum(row["finish"] == "length" for row in rows))
    if found and len(found) < len(rows):
        flat |= {f"{name.lower()}_found": value for name, value in means(found, threshold_op=threshold_op).items()}
    return flat


def summary_names() -> list[str]:
    """Names that `summarise` gives whatever the rows are."""
    return ["miou", *(f"r1@{m}" for m in THRESHOLDS), "n", "missing", "unparsed", "truncated"]


def hits(iou_N: np.ndarray, threshold: float, *, threshold_op: ThresholdOp) -> np.ndarray:
    """Which IoUs pass; NaN never does."""
    return iou_N >= threshold if threshold_op == "ge" else iou_N > threshold


def columns(rows: Rows, *, threshold_op: ThresholdOp) -> dict[str, np.ndarray]:
    """Metric name -> its value for every row [N] (mIoU: the IoU; R1@m: 0 or 1)."""
    iou_N = np.array([row["iou"] for row in rows], dtype=np.float64)
    named = {"mIoU": iou_N}
    return named | {f"R1@{m}": hits(iou_N, m, threshold_op=threshold_op).astype(np.float64) for m in THRESHOLDS}


def means(rows: Rows, *, threshold_op: ThresholdOp) -> dict[str, float]:
    """mIoU and R1@m over all rows, as fractions. mIoU is NaN when a row's IoU is (the reproduced evaluator says so)."""
    if not rows:
        return {}
    return {name: float(np.mean(values)) for name, values in columns(rows, threshold_op=threshold_op).items()}


def standard_errors(rows: Rows, *, threshold_op: ThresholdOp) -> dict[str, float]:
    """Standard error of each mean, clustered by video: queries about one video are not independent."""
    numbers: dict[str, int] = {}
    video_N = np.array([numbers.setdefault(str(row["video"]), len(numbers)) for row in rows], dtype=np.int64)
    n, clusters = len(rows), len(numbers)
    if clusters < 2:
        return {}
    errors = {}
    for name, values in columns(rows, threshold_op=threshold_op).items():
        sums = np.bincount(video_N, weights=values - np.mean(values))
        errors[name] = math.sqrt(float(np.sum(sums**2)) * clusters / (clusters - 1)) / n
    return errors


def video_groups(rows: Rows) -> list[list[int]]:
    """Row numbers of each video."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[str(row["video"])].append(index)
    return list(groups.values())


def failures(rows: Rows) -> dict[str, int]:
    """Outputs without a window, by kind; every kind is there."""
    counts = Counter(row["kind"] for row in rows)
    return {kind: counts[kind] for kind in FAILURES}


def flag_counts(rows: Rows) -> dict[str, int]:
    """Odd outputs that do have a window, by flag; an output may have several."""
    counts = Counter(flag for row in rows for flag in row["flags"])
    return {flag: counts[flag] for flag in FLAGS}


def document(rows: Rows, *, threshold_op: ThresholdOp, header: Mapping[str, Any]) -> dict[str, Any]:
    """The result document (schema version 1): header keys, n, missing, metrics as fractions, failures by kind.

    `metrics_found` (only when queries are missing) is over the queries that have an output. `excluded_by_original`:
    rows that the reproduced evaluator would lose to an exception; here they count as 0. A NaN mIoU is null in JSON.
    """
    found = [row for row in rows if row["kind"] != MISSING]
    body: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **header,
        "n": len(rows),
        "n_pred": len(found),
        "missing": len(rows) - len(found),
        "metrics": means(rows, threshold_op=threshold_op),
        "standard_errors": standard_errors(rows, threshold_op=threshold_op),
        "parse_failures": failures(rows),
        "flags": flag_counts(rows),
    }
    nan = sum(1 for row in rows if row["iou"] != row["iou"])
    if nan:
        zeroed = [{**row, "iou": 0.0} if row["iou"] != row["iou"] else row for row in rows]
        body |= {"nan": nan, "metrics_nan_as_0": means(zeroed, threshold_op=threshold_op)}
    crashes = sum(1 for row in rows if row.get("crash"))
    if crashes:
        body["excluded_by_original"] = crashes
    if found and len(found) < len(rows):
        body["metrics_found"] = means(found, threshold_op=threshold_op)
    return body
