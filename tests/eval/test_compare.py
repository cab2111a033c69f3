"""Paired comparison, its report, shards: by hand, and refused where numbers do not compare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.eval.kit import write_jsonl
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.eval.bootstrap import interval, resampled_means
from vtgrl.eval.compare import compare_runs, comparison_rows, relative_length, relative_position, two_sided
from vtgrl.eval.shards import join_shards, parse_shard, take_shard
from vtgrl.eval.vtg import VtgOptions, run_vtg


def evaluation(folder: Path, ends: list[float], **options: Any) -> Path:
    """An --out folder: query k has truth 0-10 in its own video, answered 0 to ends[k]."""
    folder.mkdir(parents=True)
    truth = [
        {"qid": k, "vid": f"v{k}", "query": f"<b>{k}</b>", "duration": 40.0, "relevant_windows": [[0, 10]], "type": "t"}
        for k in range(len(ends))
    ]
    rows = [{"qid": k, "output_text": f"<answer>0 to {end}</answer>"} for k, end in enumerate(ends)]
    annotations, predictions = write_jsonl(folder / "truth.jsonl", truth), write_jsonl(folder / "pred.jsonl", rows)
    run_vtg(VtgOptions("jsonl", annotations, predictions, out=folder / "out", **{"parser": "taro", **options}))
    return folder / "out"


def test_difference_wins_and_bins(tmp_path: Path) -> None:
    a, b = evaluation(tmp_path / "a", [5, 5, 5, 10]), evaluation(tmp_path / "b", [10, 10, 2.5, 10])
    result = compare_runs(a, b, draws=2000, html=tmp_path / "report.html")
    metric = result["metrics"]["mIoU"]
    assert (metric["a"], metric["b"], metric["difference"]) == pytest.approx((0.625, 0.8125, 0.1875))
    assert metric["interval"][0] < 0.1875 < metric["interval"][1]
    assert (result["wins"], result["losses"], result["ties"]) == (2, 1, 1)
    assert result["bins"]["window_length"] == {"25-50%": {"n": 4, "a": 0.625, "b": 0.8125}}
    assert result["bins"]["query_type"] == {"t": {"n": 4, "a": 0.625, "b": 0.8125}}
    assert comparison_rows(result)[1][:4] == ("mIoU", "62.50", "81.25", "+18.75")
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;0&lt;/b&gt;" in page
    assert not re.search(r"<script|src=|https?:", page)
    assert page.count("<svg") >= 2 + 4


def test_the_same_run_twice(tmp_path: Path) -> None:
    a = evaluation(tmp_path / "a", [5, 10, 2])
    metric = compare_runs(a, a, draws=100)["metrics"]["R1@0.5"]
    assert (metric["difference"], metric["interval"], metric["p"]) == (0.0, [0.0, 0.0], 1.0)


@pytest.mark.parametrize(
    ("options", "key"), [({"parser": "timelens"}, "parser"), ({"threshold_op": "gt"}, "threshold_op"), ({"clip_gt": True}, "clip_gt")]
)
def test_numbers_that_do_not_compare_are_refused(tmp_path: Path, options: dict[str, Any], key: str) -> None:
    a, b = evaluation(tmp_path / "a", [5, 5]), evaluation(tmp_path / "b", [5, 5], **options)
    with pytest.raises(ConfigError, match=f"do not compare: .*{key} is"):
        compare_runs(a, b)
    assert key in compare_runs(a, b, draws=100, force=True)["warnings"][0]


def test_another_ground_truth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gt_digest is"):
        compare_runs(evaluation(tmp_path / "a", [5, 5]), evaluation(tmp_path / "b", [5, 5, 5]))


def test_unfinished_folders_say_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics.json: No such file"):
        compare_runs(tmp_path, tmp_path)


def test_bootstrap_draws_videos_not_queries() -> None:
    values = np.array([[1.0], [1.0], [1.0], [0.0]])
    means = resampled_means(values, [[0, 1, 2], [3]], draws=4000, seed=0)[:, 0]
    # both videos, one of them twice: 3/4 half of the time, 1 and 0 a quarter each
    assert {round(v, 6) for v in means} == {0.0, 0.75, 1.0}
    assert (means == 0.75).mean() == pytest.approx(0.5, abs=0.03)
    assert interval(means) == (0.0, 1.0)
    assert two_sided(np.array([-1.0, 1.0, 1.0, 1.0])) == 0.5


def test_bootstrap_interval_covers_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(size=(400, 1))
    low, high = interval(resampled_means(values, [[i] for i in range(400)], draws=4000)[:, 0])
    spread = 1.96 * values.std(ddof=1) / 20
    assert (low, high) == pytest.approx((values.mean() - spread, values.mean() + spread), abs=0.01)


def test_bins_of_length_and_position() -> None:
    row = {"windows": [[0.0, 2.0]], "duration": 40.0}
    assert (relative_length(row), relative_position(row)) == ("0-10%", "0-33%")
    row = {"windows": [[30.0, 40.0]], "duration": 40.0}
    assert (relative_length(row), relative_position(row)) == ("25-50%", "67%+")
    assert relative_length({"windows": [[0, 1]], "duration": None}) == "unknown"


def test_shards_partition_the_queries() -> None:
    from tests.eval.kit import sample

    samples = [sample(str(k), [(0, 1)]) for k in range(7)]
    parts = [take_shard(samples, f"{i}/3") for i in range(3)]
    assert sorted(s.id for part in parts for s in part) == [s.id for s in samples]
    assert parse_shard("") == (0, 1)
    for bad in ("3/3", "1", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="write i/n"):
            parse_shard(bad)


def test_join_needs_every_shard(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no shard_i_of_n folders"):
        join_shards(tmp_path)
    (tmp_path / "shard_0_of_2").mkdir()
    with pytest.raises(ConfigError, match="shard 0, 1 of 2 has not finished"):
        join_shards(tmp_path)
