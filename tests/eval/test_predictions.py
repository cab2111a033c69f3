"""Matching a predictions file to its queries: nothing folds, nothing vanishes (public fault 46)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.eval.kit import read_jsonl, write_jsonl
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.eval.scoring import problems
from vtgrl.eval.vtg import VtgOptions, run_vtg

TRUTH = [{"qid": k, "vid": f"v{k // 2}", "query": f"query {k}", "duration": 30.0, "relevant_windows": [[10, 20]]} for k in range(4)]


def run(tmp_path: Path, predictions: list[dict[str, Any]], truth: list[dict[str, Any]] | None = None, **options: Any) -> dict[str, Any]:
    return run_vtg(
        VtgOptions(
            benchmark="jsonl",
            annotations=write_jsonl(tmp_path / "truth.jsonl", TRUTH if truth is None else truth),
            predictions=write_jsonl(tmp_path / "pred.jsonl", predictions),
            **options,
        )
    )


def texts(*ids: object) -> list[dict[str, Any]]:
    return [{"qid": i, "output_text": "<answer>10 to 20</answer>"} for i in ids]


def test_document_of_a_clean_run(tmp_path: Path) -> None:
    result = run(tmp_path, texts(0, 1, 2, 3), per_row=tmp_path / "rows.jsonl", out=tmp_path / "out", bootstrap=200)
    assert result["schema_version"] == 1
    assert {"benchmark", "protocol", "parser", "threshold_op", "n", "missing", "gt_digest", "metrics", "parse_failures"} <= set(result)
    assert result["metrics"] == {"mIoU": 1.0, "R1@0.3": 1.0, "R1@0.5": 1.0, "R1@0.7": 1.0}
    assert result["confidence_intervals"]["mIoU"] == [1.0, 1.0]
    assert problems(result) == {}
    assert [(r["qid"], r["pred"], r["iou"]) for r in read_jsonl(tmp_path / "rows.jsonl")] == [(str(k), [10.0, 20.0], 1.0) for k in range(4)]
    assert json.loads((tmp_path / "out/metrics.json").read_text()) == result


def test_gaps_duplicates_and_strangers_are_counted(tmp_path: Path) -> None:
    rows = [*texts(0, 1, 1, "x"), {"qid": 2, "output_text": "nothing"}]
    rows[2]["output_text"] = "<answer>20 to 30</answer>"
    result = run(tmp_path, rows)
    assert (result["n"], result["n_pred"], result["missing"], result["duplicate"], result["unknown"]) == (4, 3, 1, 1, 1)
    assert result["metrics"]["mIoU"] == 0.25  # the last row of an id counts
    assert result["metrics_found"]["mIoU"] == pytest.approx(1 / 3)
    assert problems(result) == {"missing": 1, "duplicate": 1, "unknown": 1, "parse failures": 1}


def test_identical_rows_do_not_fold(tmp_path: Path) -> None:
    """Three rows, two of them equal in all but the id, stay three."""
    truth = [{**TRUTH[0], "qid": name} for name in ("a", "b")] + [{**TRUTH[1], "qid": "c"}]
    assert run(tmp_path, texts("a", "b"), truth)["metrics"]["mIoU"] == pytest.approx(2 / 3)


def test_a_repeated_id_does_not_fold_either(tmp_path: Path) -> None:
    truth = [{**TRUTH[0], "qid": "same"}, {**TRUTH[0], "qid": "same", "relevant_windows": [[0, 5]]}, {**TRUTH[1], "qid": "c"}]
    rows = [{"qid": "same", "output_text": "10 to 20"}, {"qid": "same", "output_text": "0 to 5"}, {"qid": "c", "output_text": "0 to 1"}]
    result = run(tmp_path, rows, truth, per_row=tmp_path / "rows.jsonl", parser="time_r1")
    assert (result["n"], result["duplicate"]) == (3, 0)
    assert result["metrics"]["mIoU"] == pytest.approx(2 / 3)
    assert [r["id"] for r in read_jsonl(tmp_path / "rows.jsonl")] == ["same", "same#2", "c"]


def test_foreign_ids_match_by_content_only_when_no_id_is_known(tmp_path: Path) -> None:
    rows = [{"qid": f"other{k}", "vid": f"v{k // 2}.mp4", "query": f" query  {k}", "output_text": "10 to 20"} for k in range(4)]
    result = run(tmp_path, rows, parser="time_r1")
    assert (result["matched_by_content"], result["metrics"]["mIoU"]) == (4, 1.0)
    mixed = run(tmp_path, [{**rows[0], "qid": 0}, *rows[1:]], parser="time_r1")
    assert (mixed["matched_by_content"], mixed["unknown"], mixed["missing"]) == (0, 3, 3)


def test_all_parsers_side_by_side_with_a_warning(tmp_path: Path) -> None:
    result = run(tmp_path, [{"qid": k, "output_text": "<answer>10.50s to 20.50s</answer>"} for k in range(4)], parser="all")
    assert result["parsers"]["time_r1"]["metrics"]["mIoU"] == 0.0
    assert result["parsers"]["taro"]["metrics"]["mIoU"] == pytest.approx(9.5 / 10.5)
    assert "name the parser" in result["warnings"][0]
    agreed = run(tmp_path, [{"qid": k, "output_text": "nothing"} for k in range(4)], parser="all")
    assert "warnings" not in agreed


def test_ranked_windows(tmp_path: Path) -> None:
    rows = [{"qid": k, "pred_relevant_windows": [[10, 20, 0.9], [0, 5, 0.1]]} for k in range(4)]
    result = run(tmp_path, rows, official=True)
    assert result["parser"] == "ranked"
    assert list(result["official"]) == ["brief", "full"]
    assert result["official"]["brief"]["MR-full-mAP"] == 100.0
    assert result["ranked"]["mAP"]["average"] == 1.0
    short = run(tmp_path, rows[:3], official=True)
    assert short["official"] is None
    assert "AssertionError" in short["official_error"]
    assert short["ranked"]["mAP"]["average"] == 0.75


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([{"output_text": "x"}], 'pred.jsonl:1: no "qid" or "id"'),
        ([{"qid": 1}], "neither"),
        ([{"qid": 1, "output_text": 5}], "is a text or null, not int"),
        ([{"qid": 1, "output_text": "x"}, {"qid": 2, "pred_relevant_windows": []}], "pred.jsonl:2: a file holds either"),
        ([{"qid": 1, "pred_relevant_windows": [[1]]}], r"is \[start, end, score\]"),
        ([{"qid": 1, "pred_relevant_windows": [[1, "b", 1]]}], "'b' is not a number"),
        ([{"qid": 1, "pred_relevant_windows": [], "pred_saliency_scores": [float("nan")]}], "NaN or infinity"),
    ],
)
def test_bad_rows_name_file_and_row(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(tmp_path, rows)


def test_option_conflicts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--official needs ranked windows"):
        run(tmp_path, texts(0), official=True)
    with pytest.raises(ConfigError, match="either --model"):
        run_vtg(VtgOptions(benchmark="jsonl", annotations=tmp_path / "truth.jsonl"))
    with pytest.raises(DataError, match="check the path"):
        run_vtg(VtgOptions(benchmark="jsonl", annotations=tmp_path / "none.jsonl", predictions=tmp_path / "pred.jsonl"))


def test_whole_benchmarks_by_file(shared_dir: Path) -> None:
    """Text file with raw ground truth, TaRO's clipped copy and TVGBench, through the same door as the command line."""
    data, text = shared_dir / "data", shared_dir / "golden/text"
    predictions = text / "charades_sta_test_raw_gt_predictions.jsonl"
    raw = run_vtg(VtgOptions("charades_sta", data / "charades_sta/videox_charades_sta_test.txt", predictions, parser="taro"))
    official = json.loads((text / "charades_sta_test_raw_gt.taro_official_metrics.json").read_text())
    assert raw["metrics"]["mIoU"] == pytest.approx(official["mIoU"], abs=1e-12)
    assert raw["metrics"]["R1@0.7"] == pytest.approx(official["Recall@0.7"], abs=1e-12)
    clipped = run_vtg(VtgOptions("charades_sta", data / "charades_sta/taro_charades_sta_test.jsonl", predictions, protocol="taro"))
    assert clipped["clip_gt"]
    assert clipped["gt_digest"] != raw["gt_digest"]
    assert clipped["metrics"]["R1@0.7"] == pytest.approx(0.4381, abs=1e-4)
    tvg = run_vtg(VtgOptions("tvgbench", data / "tvgbench/timer1_tvgbench.json", text / "tvgbench_predictions.jsonl", protocol="time_r1"))
    scores = json.loads((text / "tvgbench.timer1_official_scores.json").read_text())
    assert 100 * tvg["metrics"]["mIoU"] == pytest.approx(scores["mIoU"], abs=1e-10)
    assert 100 * tvg["metrics"]["R1@0.5"] == pytest.approx(scores["0.5"], abs=1e-10)


def test_texts_against_taros_windows_match_row_by_row(shared_dir: Path, tmp_path: Path) -> None:
    """The golden aggregate leaves out 7 rows whose spelling differs; the other 3,713 give its numbers."""
    text = shared_dir / "golden/text"
    predictions = text / "charades_sta_test_raw_gt_predictions.jsonl"
    annotations = shared_dir / "data/charades_sta/taro_charades_sta_test.jsonl"
    run_vtg(VtgOptions("charades_sta", annotations, predictions, parser="taro", per_row=tmp_path / "rows.jsonl"))
    queries = {row["qid"]: row["query"] for row in read_jsonl(annotations)}
    given = read_jsonl(predictions)
    kept = [
        row["iou"] for row, said in zip(read_jsonl(tmp_path / "rows.jsonl"), given, strict=True) if queries[row["qid"]] == said["query"]
    ]
    expected = json.loads((text / "charades_sta_test_taro_gt_metrics.json").read_text())["evaluators"]["TaRO-eval"]
    assert len(kept) == expected["n"]
    assert sum(kept) / len(kept) == pytest.approx(expected["mIoU"], abs=1e-12)
