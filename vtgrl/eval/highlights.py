"""Highlight detection of QVHighlights: average precision and Hit1 of clip scores, vectorised.

Three workers rated each 2-second clip 0-4. A clip is positive for a worker at Fair (2), Good (3) or VeryGood (4) and above.
Shape legend: Q queries, C clips (padded), A workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CLIP_SECONDS = 2
LEVELS = {"Fair": 2, "Good": 3, "VeryGood": 4}


@dataclass(frozen=True, eq=False)
class Ratings:
    """rating_QCA: int, 0 outside the rated clips. clips_Q: clips of each video."""

    rating_QCA: np.ndarray
    clips_Q: np.ndarray


def ratings_of(durations: Sequence[float], clip_ids: Sequence[Sequence[int]], scores: Sequence[Sequence[Sequence[int]]]) -> Ratings:
    """Ratings of all clips of each query; only the listed clips were rated, the rest count as 0."""
    clips_Q = np.array([int(d / CLIP_SECONDS) for d in durations], dtype=np.int64)
    rating_QCA = np.zeros((len(durations), int(clips_Q.max(initial=1)), 3), dtype=np.int64)
    for q, (ids, given) in enumerate(zip(clip_ids, scores, strict=True)):
        if ids:
            rating_QCA[q, list(ids)] = given
    return Ratings(rating_QCA, clips_Q)


def highlight_metrics(ratings: Ratings, predicted: Sequence[Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Level -> (mAP, Hit1) as fractions.

    For mAP short score lists are padded with 0 and long ones cut to the video; Hit1 takes the highest score of the list as
    given (the first one on ties), so a highest score after the end of the video never hits. An empty list hits nothing.
    """
    nowhere = ratings.rating_QCA.shape[1]
    top_Q = np.array([int(np.argmax(scores)) if len(scores) else nowhere for scores in predicted], dtype=np.int64)
    score_QC = _fit(predicted, ratings)
    inside_QC = np.arange(score_QC.shape[1]) < ratings.clips_Q[:, None]
    ranking = _Ranking.of(score_QC, inside_QC)
    result = {}
    for level, least in LEVELS.items():
        positive_QCA = ratings.rating_QCA >= least
        ap_QA = np.stack([ranking.average_precision(positive_QCA[:, :, a]) for a in range(3)], axis=1)
        hit_Q = _hit(np.any(positive_QCA, axis=2), top_Q, ratings.clips_Q)
        result[level] = (float(ap_QA.mean()), float(hit_Q.mean()))
    return result


def _fit(predicted: Sequence[Sequence[float]], ratings: Ratings) -> np.ndarray:
    score_QC = np.zeros(ratings.rating_QCA.shape[:2])
    for q, (scores, clips) in enumerate(zip(predicted, ratings.clips_Q, strict=True)):
        given = scores[: int(clips)]
        score_QC[q, : len(given)] = given
    return score_QC


def _hit(positive_QC: np.ndarray, top_Q: np.ndarray, clips_Q: np.ndarray) -> np.ndarray:
    inside_Q = top_Q < clips_Q
    return positive_QC[np.arange(len(top_Q)), np.where(inside_Q, top_Q, 0)] & inside_Q


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Clips of each query from the highest score to the lowest. last_QC: the last clip of a run of equal scores; precision
    and recall exist only there."""

    order_QC: np.ndarray
    last_QC: np.ndarray

    @classmethod
    def of(cls, score_QC: np.ndarray, inside_QC: np.ndarray) -> _Ranking:
        keyed = np.where(inside_QC, -score_QC, np.inf)
        order_QC = np.argsort(keyed, axis=1, kind="stable")
        sorted_QC = np.take_along_axis(keyed, order_QC, axis=1)
        following = np.concatenate([sorted_QC[:, 1:], np.full((len(sorted_QC), 1), np.inf)], axis=1)
        last_QC = (sorted_QC != following) & np.isfinite(sorted_QC)
        return cls(order_QC, last_QC)

    def average_precision(self, positive_QC: np.ndarray) -> np.ndarray:
        """[Q]: mean, over the distinct recalls that are reached, of the best precision at that recall or a higher one.

        No positive clip: 0."""
        hit_QC = np.take_along_axis(positive_QC, self.order_QC, axis=1)
        found_QC = np.cumsum(hit_QC, axis=1)
        precision_QC = np.where(self.last_QC, found_QC / np.arange(1, hit_QC.shape[1] + 1), 0.0)
        best_QC = np.maximum.accumulate(precision_QC[:, ::-1], axis=1)[:, ::-1]
        before_QC = np.maximum.accumulate(np.where(self.last_QC, found_QC, 0), axis=1)
        before_QC = np.concatenate([np.zeros((len(hit_QC), 1), dtype=before_QC.dtype), before_QC[:, :-1]], axis=1)
        step_QC = self.last_QC & (found_QC > before_QC)
        return (best_QC * step_QC).sum(axis=1) / np.maximum(step_QC.sum(axis=1), 1)
