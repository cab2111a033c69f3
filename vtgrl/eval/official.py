"""The official QVHighlights evaluator, its key layout, rounding and quirks; and the same numbers without the quirks.

Quirks that `official_metrics` keeps: R1 takes the FIRST window of a list, not the one with the highest score; mAP cuts the
list to ten before sorting; a reversed window as long as a true one overlaps it by 0/0 = NaN, which passes every threshold;
mAP averages only over queries that have predictions; in a length range, predictions outside the range stay. Where the
official tool stops with an error, `official_stop` says why. Other benchmarks use lighthouse's form: one range, "full".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtgrl.core.types import Sample, Window
from vtgrl.eval.highlights import LEVELS, Ratings, highlight_metrics, ratings_of
from vtgrl.eval.ranked import IOU_THRESHOLDS, MAX_WINDOWS, Ranked, average_precision, best_hull, by_score

RANGES = {"short": (0.0, 10.0), "middle": (10.0, 30.0), "long": (30.0, 150.0)}
"""Length of a true window in seconds, (above, up to]."""

Submission = Mapping[str, Ranked]


def official_stop(samples: Sequence[Sample], submission: Submission) -> str | None:
    """Why the official tool gives no numbers for this submission, None when it does."""
    missing = sum(s.id not in submission for s in samples)
    if missing:
        return f"{missing} queries of the ground truth are not in the submission (AssertionError)"
    if not samples:
        return "there are no queries"
    empty = sum(not submission[s.id].windows for s in samples)
    if empty:
        return f"{empty} queries have an empty window list (IndexError)"
    bare = sum(any(w[2] is None for w in submission[s.id].windows[:MAX_WINDOWS]) for s in samples)
    if bare:
        return f"{bare} queries have windows without a score (IndexError)"
    silent = sum(not submission[s.id].saliency for s in samples)
    if 0 < silent < len(samples):
        return f"{silent} queries have no pred_saliency_scores although others do (KeyError)"
    strange = sum(not (math.isfinite(w[0]) and math.isfinite(w[1])) for s in samples for w in submission[s.id].windows)
    if strange:
        return f"{strange} windows are NaN or infinite: it would count them as hits at every threshold"
    return None


def official_metrics(samples: Sequence[Sample], submission: Submission, *, ranges: bool = True) -> dict[str, Any]:
    """The official document: `brief`, then HL and the length ranges in alphabetical order; percent with two decimals.

    Args:
        samples: the ground truth; for highlights `meta` holds relevant_clip_ids and saliency_scores.
        submission: one row a query, as `official_stop` accepts it.
        ranges: short, middle and long beside full (QVHighlights); False is lighthouse's form.
    """
    groups = {"full": [list(s.windows) for s in samples]}
    if ranges:
        groups |= {name: [_in_range(s.windows, *limits) for s in samples] for name, limits in RANGES.items()}
    parts: dict[str, Any] = {name: _moments(samples, submission, truth) for name, truth in groups.items()}
    if samples and submission[samples[0].id].saliency and _rated(samples):
        parts |= _highlights(samples, submission)
    return {"brief": _brief(parts), **dict(sorted(parts.items()))}


def _in_range(windows: Sequence[Window], above: float, up_to: float) -> list[Window]:
    return [w for w in windows if above < w[1] - w[0] <= up_to]


def _moments(samples: Sequence[Sample], submission: Submission, truth: Sequence[Sequence[Window]]) -> dict[str, dict[str, float]]:
    used = [i for i, windows in enumerate(truth) if windows]
    wanted = [truth[i] for i in used]
    lists = [submission[samples[i].id].windows for i in used]
    pred = [[(w[0], w[1]) for w in by_score(windows[:MAX_WINDOWS])] for windows in lists]
    ap_T = average_precision(pred, wanted).mean(axis=0) if used else np.full(len(IOU_THRESHOLDS), np.nan)
    best_Q = best_hull([(windows[0][0], windows[0][1]) for windows in lists], wanted)
    precision = {str(t): percent(v) for t, v in zip(IOU_THRESHOLDS, ap_T, strict=True)}
    recall = {str(t): percent(float((best_Q >= t).mean())) if used else math.nan for t in IOU_THRESHOLDS}
    return {"MR-mAP": {**precision, "average": percent(float(ap_T.mean()))}, "MR-R1": recall}


def percent(fraction: float) -> float:
    """Per cent, rounded to two decimals as the official tool prints it."""
    return float(f"{100 * fraction:.2f}")


def _rated(samples: Sequence[Sample]) -> bool:
    return all("saliency_scores" in s.meta for s in samples)


def sample_ratings(samples: Sequence[Sample]) -> Ratings:
    """Highlight ratings of QVHighlights rows."""
    durations = [s.video.duration or 0.0 if s.video else 0.0 for s in samples]
    ids = [s.meta["relevant_clip_ids"] for s in samples]
    return ratings_of(durations, ids, [s.meta["saliency_scores"] for s in samples])


def _highlights(samples: Sequence[Sample], submission: Submission) -> dict[str, dict[str, float]]:
    scores = [submission[s.id].saliency or () for s in samples]
    found = highlight_metrics(sample_ratings(samples), scores)
    return {f"HL-min-{level}": {"HL-mAP": percent(found[level][0]), "HL-Hit1": percent(found[level][1])} for level in LEVELS}


def _brief(parts: Mapping[str, Any]) -> dict[str, float]:
    full = parts["full"]
    brief = {
        "MR-full-R1@0.5": full["MR-R1"]["0.5"],
        "MR-full-R1@0.7": full["MR-R1"]["0.7"],
        "MR-full-mAP": full["MR-mAP"]["average"],
        "MR-full-mAP@0.5": full["MR-mAP"]["0.5"],
        "MR-full-mAP@0.75": full["MR-mAP"]["0.75"],
    }
    brief |= {f"MR-{name}-mAP": parts[name]["MR-mAP"]["average"] for name in ("long", "middle", "short") if name in parts}
    for level in LEVELS:
        if f"HL-min-{level}" in parts:
            brief |= {f"HL-min-{level}-{key[3:]}": value for key, value in parts[f"HL-min-{level}"].items()}
    return brief
