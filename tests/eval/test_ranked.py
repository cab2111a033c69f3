"""The official QVHighlights evaluator: against a plain loop, by hand, and against its published numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.eval.kit import sample
from vtgrl.core.types import Sample
from vtgrl.eval.bench.qvhighlights import QvhighlightsConfig, qvhighlights
from vtgrl.eval.benchmark import BenchConfig
from vtgrl.eval.highlights import highlight_metrics, ratings_of
from vtgrl.eval.official import official_metrics, official_stop
from vtgrl.eval.predictions import load_predictions
from vtgrl.eval.ranked import IOU_THRESHOLDS, Ranked, average_precision
from vtgrl.eval.ranked_report import ranked_metrics, ranked_rows
from vtgrl.eval.types import GroundTruth


def loop_precision(pred: Sequence[tuple[float, float]], truth: Sequence[tuple[float, float]], threshold: float) -> float:
    """Average precision of one query, one prediction after the other, as its description reads."""
    taken: set[int] = set()
    hits: list[bool] = []
    for start, end in pred:
        ious = []
        for first, last in truth:
            overlap = max(0.0, min(end, last) - max(start, first))
            union = (end - start) + (last - first) - overlap
            ious.append(math.nan if union == 0 and overlap == 0 else overlap / union)
        order = sorted(range(len(truth)), key=lambda j: (math.isnan(ious[j]), ious[j], j), reverse=True)
        order.sort(key=lambda j: math.isnan(ious[j]), reverse=True)
        found = next((j for j in order if not ious[j] < threshold and j not in taken), None)
        hits.append(found is not None)
        if found is not None:
            taken.add(found)
    area = 0.0
    for k, hit in enumerate(hits):
        if hit:
            area += max(sum(hits[: j + 1]) / (j + 1) for j in range(k, len(hits))) / len(truth)
    return area


def test_vectorised_precision_is_the_loops() -> None:
    rng = np.random.default_rng(0)
    pred, truth = [], []
    for _ in range(300):
        pred.append([tuple(map(float, rng.integers(0, 8, 2))) for _ in range(rng.integers(0, 9))])
        truth.append(
            [(float(s), float(s + d)) for s, d in zip(rng.integers(0, 8, 3), rng.integers(1, 6, 3), strict=True)][: rng.integers(1, 4)]
        )
    ours = average_precision(pred, truth)
    theirs = np.array([[loop_precision(p, t, threshold) for threshold in IOU_THRESHOLDS] for p, t in zip(pred, truth, strict=True)])
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert 0.05 < ours.mean() < 0.95


def loop_highlight(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """Mean over distinct recalls of the best precision at that recall or a higher one."""
    total = sum(positive)
    if total == 0:
        return 0.0
    points: list[tuple[float, float]] = []
    for level in sorted(set(scores), reverse=True):
        chosen = [p for s, p in zip(scores, positive, strict=True) if s >= level]
        points.append((sum(chosen) / total, sum(chosen) / len(chosen)))
    recalls = sorted({r for r, _ in points if r > 0})
    return float(np.mean([max(p for r, p in points if r >= recall) for recall in recalls]))


def test_vectorised_highlights_are_the_loops() -> None:
    rng = np.random.default_rng(1)
    clips = rng.integers(3, 12, size=60)
    ids = [sorted(rng.choice(c, size=rng.integers(1, c + 1), replace=False).tolist()) for c in clips]
    given = [rng.integers(0, 5, size=(len(i), 3)).tolist() for i in ids]
    scores = [rng.integers(0, 4, size=c).astype(float).tolist() for c in clips]
    found = highlight_metrics(ratings_of([2.0 * c for c in clips], ids, given), scores)
    for level, least in (("Fair", 2), ("Good", 3), ("VeryGood", 4)):
        aps, hits = [], []
        for c, i, g, s in zip(clips, ids, given, scores, strict=True):
            ratings = np.zeros((c, 3), int)
            ratings[i] = g
            aps += [loop_highlight(s, (ratings[:, a] >= least).tolist()) for a in range(3)]
            hits.append((ratings[int(np.argmax(s))] >= least).any())
        assert found[level] == pytest.approx((np.mean(aps), np.mean(hits)), abs=1e-12)


def test_short_lists_are_padded_and_long_ones_cut_but_not_for_hit1() -> None:
    ratings = ratings_of([6.0], [[0, 1, 2]], [[[4, 4, 4], [0, 0, 0], [0, 0, 0]]])
    assert highlight_metrics(ratings, [[1.0]])["VeryGood"] == (1.0, 1.0)
    assert highlight_metrics(ratings, [[1.0, 0.5, 0.2, 9.0]])["VeryGood"] == (1.0, 0.0)
    assert highlight_metrics(ratings, [[]])["VeryGood"][1] == 0.0


def one(
    windows: Sequence[tuple[float, float, float | None]], truth: Sequence[tuple[float, float]] = ((10, 20),)
) -> tuple[list[Sample], dict[str, Ranked]]:
    return [sample("a", truth, duration=150)], {"a": Ranked(tuple(windows))}


def test_the_nan_hole_stays_under_official_and_is_closed_beside_it() -> None:
    samples, submission = one([(50, 40, 1.0)])
    official = official_metrics(samples, submission)["full"]
    assert official["MR-mAP"] == {**{str(t): 100.0 for t in IOU_THRESHOLDS}, "average": 100.0}
    assert set(official["MR-R1"].values()) == {0.0}
    corrected = ranked_metrics(samples, submission, clip_gt=False, ranges=True)
    assert corrected["mAP"]["average"] == 0.0
    assert corrected["invalid_windows"] == 1
    assert ranked_rows(samples, submission, clip_gt=False)[0]["flags"] == ["reversed"]


def test_first_window_for_r1_highest_score_for_map() -> None:
    samples, submission = one([(100, 140, 0.1), (10, 20, 0.9)])
    official = official_metrics(samples, submission)
    assert official["brief"]["MR-full-R1@0.5"] == 0.0
    assert official["brief"]["MR-full-mAP"] == 100.0
    corrected = ranked_metrics(samples, submission, clip_gt=False, ranges=False)
    assert (corrected["by_file_order"]["R1@0.5"], corrected["by_score"]["R1@0.5"]) == (0.0, 1.0)
    assert corrected["by_file_order"]["R5@0.5"] == 1.0


def test_list_is_cut_to_ten_before_sorting() -> None:
    junk = [(0.0, 150.0, 0.001 * k) for k in range(10)]
    samples, submission = one([*junk, (10, 20, 0.99)])
    assert official_metrics(samples, submission)["brief"]["MR-full-mAP"] == 0.0
    assert ranked_metrics(samples, submission, clip_gt=False, ranges=False)["mAP"]["average"] == 1.0


def test_ties_keep_the_files_order() -> None:
    samples, submission = one([(10, 20, 0.5), (0, 150, 0.5), (1, 2, 0.5)])
    assert official_metrics(samples, submission)["brief"]["MR-full-mAP"] == 100.0


@pytest.mark.parametrize(
    ("submission", "reason"),
    [
        ({}, "not in the submission"),
        ({"a": Ranked(())}, "empty window list"),
        ({"a": Ranked(((1.0, 2.0, None),))}, "without a score"),
        ({"a": Ranked(((math.nan, 2.0, 1.0),))}, "NaN"),
        ({"a": Ranked(((1.0, 2.0, 1.0),))}, None),
    ],
)
def test_where_the_official_tool_stops(submission: dict[str, Ranked], reason: str | None) -> None:
    found = official_stop([sample("a", [(10, 20)])], submission)
    assert found is None if reason is None else reason in (found or "")


def test_queries_without_predictions_count_as_zero_beside_the_official_numbers() -> None:
    samples = [sample("a", [(10, 20)]), sample("b", [(10, 20)])]
    corrected = ranked_metrics(samples, {"a": Ranked(((10, 20, 1.0),))}, clip_gt=False, ranges=False)
    assert corrected["mAP"]["average"] == 0.5
    assert [row["kind"] for row in ranked_rows(samples, {"a": Ranked(())}, clip_gt=False)] == ["none", "missing"]


# --- golden files --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def qvh(shared_dir: Path) -> GroundTruth:
    return qvhighlights(shared_dir / "data/qvhighlights/highlight_val_release.jsonl", config=QvhighlightsConfig())


GOLDEN = [
    "sample_val_preds",
    "univtg_val_preds",
    "edge_long_saliency",
    "edge_oracle_all_windows",
    "edge_reversed_windows",
    "edge_shuffled_windows",
    "edge_top1_only",
    "edge_twelve_junk_windows_first",
]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_submissions(shared_dir: Path, qvh: GroundTruth, name: str) -> None:
    """Every key, every number, and the order of the keys."""
    folder = shared_dir / "golden/qvhighlights"
    ranked = load_predictions(folder / f"{name}.jsonl", qvh).ranked
    assert official_stop(qvh.rows, ranked) is None
    expected = json.loads((folder / f"{name}.official_metrics.json").read_text())
    assert json.dumps(official_metrics(qvh.rows, ranked)) == json.dumps(expected)


def test_golden_files_that_stop_the_official_tool(shared_dir: Path, qvh: GroundTruth) -> None:
    folder = shared_dir / "golden/qvhighlights"
    for name, reason in (("edge_some_queries_without_windows", "IndexError"), ("edge_windows_without_scores", "IndexError")):
        ranked = load_predictions(folder / f"{name}.jsonl", qvh).ranked
        assert reason in (official_stop(qvh.rows, ranked) or "")
        assert 0 < ranked_metrics(qvh.rows, ranked, clip_gt=False, ranges=True)["mAP"]["average"] < 1


def test_submissions_described_in_words(shared_dir: Path, qvh: GroundTruth) -> None:
    """Constant and short clip scores, five copies of the top window, the full video: numbers of the evaluation notes."""
    ranked = load_predictions(shared_dir / "golden/qvhighlights/sample_val_preds.jsonl", qvh).ranked
    constant = {k: Ranked(v.windows, (1.0,) * len(v.saliency or ())) for k, v in ranked.items()}
    assert official_metrics(qvh.rows, constant)["HL-min-VeryGood"] == {"HL-mAP": 11.05, "HL-Hit1": 14.97}
    short = {k: Ranked(v.windows, (v.saliency or ())[:20]) for k, v in ranked.items()}
    assert official_metrics(qvh.rows, short)["HL-min-VeryGood"] == {"HL-mAP": 22.25, "HL-Hit1": 32.0}
    copies = {k: Ranked((v.windows[0],) * 5) for k, v in ranked.items()}
    assert official_metrics(qvh.rows, copies)["brief"]["MR-full-mAP"] == 27.22
    full = {s.id: Ranked(((0.0, s.video.duration or 0.0, 1.0),)) for s in qvh.rows if s.video}
    brief = official_metrics(qvh.rows, full)["brief"]
    assert (brief["MR-full-R1@0.5"], brief["MR-full-R1@0.7"], brief["MR-full-mAP"]) == (9.03, 6.06, 5.58)


def test_lighthouse_charades(shared_dir: Path) -> None:
    """One range only, windows clipped to the video."""
    from vtgrl.eval.bench.charades_sta import CharadesConfig, charades_sta
    from vtgrl.eval.score import clipped_samples

    truth = charades_sta(shared_dir / "data/charades_sta/videox_charades_sta_test.txt", config=CharadesConfig())
    ranked = load_predictions(shared_dir / "golden/text/lighthouse_charades_test_ranked_preds.jsonl", truth).ranked
    expected = json.loads((shared_dir / "golden/text/lighthouse_charades_test_metrics.json").read_text())
    assert official_metrics(clipped_samples(truth.rows), ranked, ranges=False) == expected
    assert isinstance(CharadesConfig(), BenchConfig)
