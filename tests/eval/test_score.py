"""Overlaps, thresholds, policies and kinds of failure, by hand (public faults 47, 49, 50)."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tests.eval.kit import sample
from vtgrl.core import spans
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.registry import Component, get
from vtgrl.eval.iou import hull_iou, merge, merged_iou, pairwise_iou
from vtgrl.eval.protocol import PROTOCOLS
from vtgrl.eval.rules import choose_protocol, make_rules
from vtgrl.eval.score import Output, make_scorer, score
from vtgrl.eval.sets import best_assignment, set_scores
from vtgrl.eval.summary import document, means, standard_errors, summarise


def test_hull_is_the_one_that_core_uses() -> None:
    rng = random.Random(0)
    pairs = [[(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(2)] for _ in range(500)]
    ours = hull_iou(np.array([p[0] for p in pairs], float), np.array([p[1] for p in pairs], float))
    assert ours.tolist() == [spans.hull_iou(a, b) for a, b in pairs]


def test_set_overlaps_by_hand() -> None:
    assert merge([(5, 8), (0, 2), (1, 3), (8, 9), (4, 4)]) == [(0, 3), (5, 9)]
    assert merged_iou([(10, 20), (10, 20)], [(10, 20)]) == 1.0
    assert pairwise_iou([(10, 20), (10, 20)], [(10, 20)]) == 2.0  # UniTime: 20 / (20 + 10 - 20)
    assert pairwise_iou([(12.4, 8.5)], [(8.5, 12.4)]) == 0.0


TRUTH = [(10, 20), (30, 40)]


@pytest.mark.parametrize(
    ("policy", "pred", "expected"),
    [
        ("max", "10 to 20", 1.0),
        ("first", "10 to 20", 1.0),
        ("set", "10 to 20", 0.5),  # 10 of the 20 true seconds
        ("max", "10 to 40", 1 / 3),
        ("first", "10 to 40", 1 / 3),
        ("set", "10 to 40", 2 / 3),  # 20 of 30 seconds
        ("max", "30 to 40", 1.0),
        ("first", "30 to 40", 0.0),
        ("set", "30 to 40", 0.5),
    ],
)
def test_policies_for_several_true_windows(policy: str, pred: str, expected: float) -> None:
    scorer = make_scorer("time_r1", policy=policy)  # type: ignore[arg-type]
    assert score(scorer, [sample("a", TRUTH, duration=50)], [Output(pred)])[0]["iou"] == pytest.approx(expected)


def test_two_predicted_windows_in_the_wrong_order() -> None:
    row = score(make_scorer("omtg"), [sample("a", TRUTH, duration=50)], [Output("[30, 40] [10, 20]")])[0]
    assert row["iou"] == 1.0
    assert row["pred"] == [[10.0, 20.0], [30.0, 40.0]]


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_thresholds_at_equality(threshold: float) -> None:
    """0.5 counts for ge and not for gt, at exactly 0.3, 0.5 and 0.7 in floats."""
    rows = [{"iou": threshold, "video": "v", "kind": "ok", "finish": "stop"}]
    assert means(rows, threshold_op="ge")[f"R1@{threshold}"] == 1.0
    assert means(rows, threshold_op="gt")[f"R1@{threshold}"] == 0.0


def test_ties_on_real_annotations() -> None:
    for length, hit in ((5.0, 0.5), (3.0, 0.3), (7.0, 0.7)):
        row = score(make_scorer("time_r1"), [sample("a", [(0, 10)])], [Output(f"0 to {length}")])[0]
        assert row["iou"] == hit


@pytest.mark.parametrize(
    ("text", "unit", "fps"),
    [("from 9.35 to 18.7 seconds", "seconds", 0.0), ("25% to 50%", "percent", 0.0), ("from 280.5 to 561", "frames", 30.0)],
)
def test_one_span_in_three_units(text: str, unit: str, fps: float) -> None:
    """Fault 49: seconds, per cent and frame numbers of a 37.4 s video give the same IoU."""
    config = get("parser", "vtgrl").config(unit=unit, fps=fps)
    row = score(make_scorer(Component("parser", "vtgrl", config)), [sample("a", [(9.0, 18.0)], duration=37.4)], [Output(text)])[0]
    assert row["iou"] == pytest.approx((18.0 - 9.35) / (18.7 - 9.0), abs=1e-6)


def test_units_are_declared_never_guessed() -> None:
    row = score(make_scorer("vtgrl"), [sample("a", [(9.0, 18.0)], duration=37.4)], [Output("25% to 50%")])[0]
    assert row["pred"] is None
    assert row["kind"] == "wrong_unit"
    with pytest.raises(ConfigError, match="reads seconds only"):
        make_rules(PROTOCOLS["strict"], parser="taro", unit="percent")


def test_zero_hull_as_each_project_has_it() -> None:
    point = [sample("a", [(5, 5)])]
    text = [Output("<answer>5 to 5</answer>")]
    assert score(make_scorer("taro"), point, text)[0]["iou"] == 0.0
    assert math.isnan(score(make_scorer("time_r1"), point, text)[0]["iou"])
    for name in ("timelens", "videochat_r1", "time_r1_reward"):
        row = score(make_scorer(name), point, text)[0]
        assert row["crash"]
        assert row["iou"] == 0.0


def test_nan_is_shown_beside_the_mean_without_it() -> None:
    samples = [sample("a", [(5, 5)]), sample("b", [(0, 10)])]
    rows = score(make_scorer("time_r1"), samples, [Output("5 to 5"), Output("0 to 10")])
    doc = document(rows, threshold_op="gt", header={})
    assert math.isnan(doc["metrics"]["mIoU"])
    assert doc["nan"] == 1
    assert doc["metrics_nan_as_0"]["mIoU"] == 0.5
    assert doc["metrics"]["R1@0.5"] == 0.5


def test_clipping_needs_a_duration() -> None:
    clip = make_scorer("taro", clip_gt=True)
    assert score(clip, [sample("a", [(5, 12)], duration=10)], [Output("5 to 10")])[0]["iou"] == 1.0
    assert score(make_scorer("taro"), [sample("a", [(5, 12)], duration=10)], [Output("5 to 10")])[0]["iou"] == pytest.approx(5 / 7)
    with pytest.raises(DataError, match="--clip-gt on needs one"):
        score(clip, [sample("a", [(5, 12)], duration=None)], [Output("5 to 10")])


@pytest.mark.parametrize(
    ("text", "finish", "kind", "flags"),
    [
        ("", "stop", "none", []),
        ("no idea", "stop", "none", []),
        ("at 5", "stop", "one_number", []),
        ("5s to 6s", "stop", "format", []),
        ("<think>well, 3", "stop", "truncated", []),
        ("at 5", "length", "truncated", []),
        ("9 to 5", "stop", "ok", ["reversed"]),
        ("5 to 5", "stop", "ok", ["zero_length"]),
        ("5 to 31", "stop", "ok", ["beyond_duration"]),
        ("5 to 30.01", "stop", "ok", []),
        ("<answer>1 to 2</answer><answer>3 to 4</answer>", "stop", "ok", ["several_answers"]),
        ("<think>from 1 to 2", "stop", "ok", ["truncated"]),
    ],
)
def test_kinds_and_flags(text: str, finish: str, kind: str, flags: list[str]) -> None:
    row = score(make_scorer("time_r1"), [sample("a", [(1, 2)])], [Output(text, finish)])[0]
    assert (row["kind"], row["flags"]) == (kind, flags)


def test_the_default_parser_says_what_it_changed() -> None:
    row = score(make_scorer("vtgrl"), [sample("a", [(5, 9)])], [Output("<answer>40s to 5s</answer>")])[0]
    assert row["pred"] == [5.0, 30.0]
    assert row["flags"] == ["swapped", "beyond_duration"]


def test_missing_counts_and_both_numbers_are_given() -> None:
    """Fault 47: three of ten videos are not there."""
    samples = [sample(str(i), [(0, 10)]) for i in range(10)]
    outputs = [Output("0 to 10") if i < 7 else Output(None, error="no such file") for i in range(10)]
    rows = score(make_scorer("time_r1"), samples, outputs)
    flat = summarise(rows)
    assert (flat["n"], flat["missing"], flat["unparsed"]) == (10, 3, 0)
    assert flat["miou"] == pytest.approx(0.7)
    assert flat["miou_found"] == 1.0
    doc = document(rows, threshold_op="ge", header={})
    assert doc["metrics_found"]["mIoU"] == 1.0
    assert sum(doc["parse_failures"].values()) == 0


def test_standard_errors_are_clustered_by_video() -> None:
    rows = [{"iou": v, "video": name} for v, name in ((1.0, "a"), (1.0, "a"), (0.0, "b"), (0.0, "b"))]
    one_each = [{"iou": v, "video": str(i)} for i, v in enumerate((1.0, 1.0, 0.0, 0.0))]
    # deviations of +-0.5: two clusters sum to +-1, so sqrt((1 + 1) * 2 / 1) / 4; alone sqrt(4 * 0.25 * 4 / 3) / 4
    assert standard_errors(rows, threshold_op="ge")["mIoU"] == pytest.approx(0.5)
    assert standard_errors(one_each, threshold_op="ge")["mIoU"] == pytest.approx(np.std([1, 1, 0, 0], ddof=1) / 2)
    assert standard_errors(rows[:2], threshold_op="ge") == {}


def test_protocol_and_overrides() -> None:
    rules = make_rules(choose_protocol(PROTOCOLS, "taro"))
    assert (rules.scorers[0].parser, rules.clip_gt, dict(rules.overrides)) == ("taro", True, {})
    changed = make_rules(choose_protocol(PROTOCOLS, "taro"), parser="time_r1")
    assert changed.scorers[0].config.threshold_op == "gt"  # its own, not TaRO's
    assert dict(changed.overrides) == {"parser": "time_r1"}
    assert make_rules(PROTOCOLS["time_r1"], threshold_op="ge").scorers[0].config.threshold_op == "ge"
    with pytest.raises(ConfigError, match="there are: strict, taro"):
        choose_protocol(PROTOCOLS, "tarro")


def test_set_scores_by_hand() -> None:
    scores = set_scores([(0, 10), (20, 30)], [(0, 10), (21, 30), (50, 60)])
    assert scores["C-Acc"] == 0.0
    assert scores["tP@0.5"] == 1.0
    assert scores["tR@0.5"] == pytest.approx(2 / 3)
    assert scores["tF1@0.5"] == pytest.approx(0.8)
    assert scores["EtF1"] == 0.0
    assert scores["tIoU"] == pytest.approx(19 / 30)
    assert set_scores([(5, 6)], [(5, 6)])["EtF1"] == 1.0
    assert set_scores([], [(5, 6)])["tF1@0.3"] == 0.0


def test_assignment_is_the_cheapest() -> None:
    from itertools import permutations

    rng = np.random.default_rng(0)
    for _ in range(100):
        rows, cols = sorted(map(int, rng.integers(1, 6, size=2)))
        cost = -rng.random((rows, cols))
        chosen = best_assignment(cost)
        best = min(sum(cost[i, p[i]] for i in range(rows)) for p in permutations(range(cols), rows))
        assert len(set(chosen)) == rows
        assert sum(cost[i, c] for i, c in enumerate(chosen)) == pytest.approx(best)


def test_a_query_without_truth_is_an_error() -> None:
    with pytest.raises(DataError, match="has no true window"):
        score(make_scorer("taro"), [sample("a", [])], [Output("1 to 2")])
