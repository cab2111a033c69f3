"""Ranked windows scored without the official quirks: every query counts, impossible windows are reported and left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtgrl.core.types import Sample, Window
from vtgrl.eval.highlights import LEVELS, highlight_metrics
from vtgrl.eval.official import RANGES, sample_ratings
from vtgrl.eval.ranked import IOU_THRESHOLDS, MAX_WINDOWS, Ranked, average_precision, best_hull, by_score, is_valid, recall_at
from vtgrl.eval.score import true_windows
from vtgrl.eval.summary import THRESHOLDS
from vtgrl.eval.types import MISSING

NOTHING = Ranked(())


def ranked_rows(samples: Sequence[Sample], submission: Mapping[str, Ranked], *, clip_gt: bool) -> list[dict[str, Any]]:
    """One scored row a query for its FIRST window, in the form of `vtgrl.eval.score.score`."""
    truth = true_windows(samples, clip=clip_gt, need_duration=clip_gt)
    first = [_first(submission.get(s.id, NOTHING)) for s in samples]
    iou_N = best_hull(first, truth)
    return [
        _row(sample, submission.get(sample.id), window, windows=true, iou=iou)
        for sample, window, true, iou in zip(samples, first, truth, iou_N.tolist(), strict=True)
    ]


def _first(row: Ranked) -> Window | None:
    return (row.windows[0][0], row.windows[0][1]) if row.windows and is_valid(row.windows[0]) else None


def _row(sample: Sample, given: Ranked | None, window: Window | None, *, windows: Sequence[Window], iou: float) -> dict[str, Any]:
    kind = MISSING if given is None else "none" if not given.windows else "ok"
    shown = list(given.windows[0][:2]) if given is not None and given.windows else None
    return {
        "id": sample.id,
        "video": sample.video.path if sample.video else None,
        "query": sample.query,
        "type": str(sample.meta.get("type") or ""),
        "duration": sample.video.duration if sample.video else None,
        "windows": [list(w) for w in windows],
        "pred": shown,
        "iou": iou,
        "kind": kind,
        "flags": [_fault(shown)] if shown is not None and window is None else [],
        "output_text": None,
        "finish": "stop",
        "error": None if given is not None else "the predictions file has no row for it",
    }


def _fault(window: Sequence[float]) -> str:
    if not all(map(math.isfinite, window)):
        return "not_finite"
    return "reversed" if window[0] > window[1] else "zero_length"


def ranked_metrics(samples: Sequence[Sample], submission: Mapping[str, Ranked], *, clip_gt: bool, ranges: bool) -> dict[str, Any]:
    """Fractions over ALL queries: mAP (average, @0.5, @0.75; by length when `ranges`), R1 and R5 by file order, R1 of the
    highest score, highlights when every row has clip scores; how many windows were left out and why."""
    truth = true_windows(samples, clip=clip_gt, need_duration=clip_gt)
    given = [submission.get(s.id, NOTHING) for s in samples]
    kept = [[w for w in row.windows if is_valid(w)] for row in given]
    best_first = [[(w[0], w[1]) for w in by_score(windows)[:MAX_WINDOWS]] for windows in kept]
    in_order = [[(w[0], w[1]) for w in windows] for windows in kept]
    report: dict[str, Any] = {
        "invalid_windows": sum(row.invalid for row in given),
        "queries_without_windows": sum(not windows for windows in kept),
        "windows_without_score": sum(w[2] is None for row in given for w in row.windows),
        "mAP": _mean_precision(best_first, truth),
        "by_file_order": {**_recalls(1, in_order, truth), **_recalls(5, in_order, truth)},
        "by_score": {**_recalls(1, best_first, truth), **_recalls(5, best_first, truth)},
    }
    if ranges:
        for name, (above, up_to) in RANGES.items():
            wanted = [[w for w in windows if above < w[1] - w[0] <= up_to] for windows in truth]
            used = [i for i, windows in enumerate(wanted) if windows]
            report[f"mAP_{name}"] = _mean_precision([best_first[i] for i in used], [wanted[i] for i in used])
    if all("saliency_scores" in s.meta for s in samples) and any(row.saliency is not None for row in given):
        found = highlight_metrics(sample_ratings(samples), [row.saliency or () for row in given])
        report["highlights"] = {level: {"mAP": found[level][0], "Hit1": found[level][1]} for level in LEVELS}
        report["queries_without_saliency"] = sum(row.saliency is None for row in given)
    return report


def _mean_precision(windows: Sequence[Sequence[Window]], truth: Sequence[Sequence[Window]]) -> dict[str, float]:
    if not truth:
        return {}
    ap_T = average_precision(windows, truth).mean(axis=0)
    return {"average": float(ap_T.mean()), **{f"@{t}": float(v) for t, v in zip(IOU_THRESHOLDS, ap_T, strict=True)}}


def _recalls(k: int, windows: Sequence[Sequence[Window]], truth: Sequence[Sequence[Window]]) -> dict[str, float]:
    return {f"R{k}@{t}": float(np.mean(hit)) for t, hit in recall_at(k, windows, truth, thresholds=THRESHOLDS).items()}
