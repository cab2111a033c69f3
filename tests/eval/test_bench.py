"""Benchmark files: what they hold, how they are told apart, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.eval.kit import sample, write_jsonl
from vtgrl.core.errors import DataError
from vtgrl.core.registry import get, names
from vtgrl.eval.bench.activitynet_marks import MARKS
from vtgrl.eval.benchmark import BenchConfig, gt_digest
from vtgrl.eval.iou import hull_iou
from vtgrl.eval.lint import lint_benchmark, lint_rows
from vtgrl.eval.types import GroundTruth


def load(name: str, path: Path, **settings: object) -> GroundTruth:
    entry = get("benchmark", name)
    truth: GroundTruth = entry.fn(path, config=entry.config(**settings))
    return truth


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_every_benchmark_has_the_named_protocols() -> None:
    assert set(names("benchmark")) >= {"charades_sta", "qvhighlights", "tvgbench", "tacos", "ego4d_nlq", "nextgqa", "didemo", "jsonl"}
    for name in names("benchmark"):
        config = get("benchmark", name).config
        assert issubclass(config, BenchConfig)
        assert set(config.protocols) == {"strict", "taro", "time_r1", "qwen", "timelens"}
        for protocol in config.protocols.values():
            get("prompt", protocol.prompt)
            get("parser", protocol.parser)


def test_charades_text(tmp_path: Path) -> None:
    file = tmp_path / "test.txt"
    file.write_text("AAAAA 1.0 7.5##person sits.\nbroken line\nBBBBB 2.0 40.0##person runs.")
    (tmp_path / "Charades_v1_test.csv").write_text('id,descriptions,length\nAAAAA,"a, b",33.1\nBBBBB,c,31.0\n')
    truth = load("charades_sta", file)
    assert [(s.id, s.query, s.windows, s.video and s.video.duration) for s in truth.rows] == [
        ("charades_0", "person sits.", ((1.0, 7.5),), 33.1),
        ("charades_2", "person runs.", ((2.0, 40.0),), 31.0),  # kept as published
    ]
    assert truth.rejected == ((f"{file}:2", 'expected "VIDEO START END##query"'),)
    (tmp_path / "Charades_v1_test.csv").unlink()
    assert "durations are unknown" in load("charades_sta", file).notes[0]
    with pytest.raises(DataError, match="no such file"):
        load("charades_sta", file, csv=str(tmp_path / "other.csv"))


def test_tvgbench_cuts(tmp_path: Path) -> None:
    rows = [
        {
            "path": "./x/KW.mp4",
            "question": "sits",
            "answer": "13.4-28.1",
            "start": None,
            "end": None,
            "duration": 30.12,
            "qsemtype": "Pose",
        },
        {"path": "a.mp4", "question": "gas", "answer": "9.9-45.9", "start": 53.0, "end": 152.4, "duration": 99.4},
        {"path": "b.mp4", "question": "bad", "answer": "unknown", "duration": 9},
    ]
    truth = load("tvgbench", write(tmp_path / "t.json", rows))
    first, second = truth.rows
    assert (first.id, first.windows, first.meta["type"]) == ("tvgbench_0", ((13.4, 28.1),), "Pose")
    assert first.video is not None
    assert (first.video.path, first.video.start, first.video.maybe_cut) == ("KW.mp4", None, False)
    assert second.video is not None
    assert (second.video.start, second.video.end, second.video.maybe_cut) == (53.0, 152.4, True)
    assert truth.rejected == ((f"{tmp_path}/t.json:item 3", "no true window"),)


def test_tacos_frames_are_seconds(tmp_path: Path) -> None:
    video = {"timestamps": [[141, 354]], "sentences": ["She took out kiwi"], "fps": 29.4, "num_frames": 7346}
    frames = load("tacos", write(tmp_path / "t.json", {"s30.avi": video, "s31.avi": {"fps": 1}}))
    row = {
        "qid": "s30_0",
        "vid": "s30",
        "query": "She took out kiwi",
        "duration": 7346 / 29.4,
        "relevant_windows": [[141 / 29.4, 354 / 29.4]],
    }
    seconds = load("tacos", write_jsonl(tmp_path / "t.jsonl", [row]))
    assert frames.rows == seconds.rows
    assert gt_digest(frames.rows) == gt_digest(seconds.rows)
    assert "needs fps" in frames.rejected[0][1]


def test_other_formats(tmp_path: Path) -> None:
    query = {"query": "where", "clip_start_sec": 1.0, "clip_end_sec": 2.5}
    clip = {
        "clip_uid": "c",
        "video_start_sec": 10,
        "video_end_sec": 490,
        "annotations": [{"annotation_uid": "u", "language_queries": [query]}],
    }
    ego = load("ego4d_nlq", write(tmp_path / "e.json", {"videos": [{"clips": [clip]}]})).rows[0]
    assert (ego.id, ego.windows, ego.video and ego.video.duration) == ("u_0", ((1.0, 2.5),), 480)
    gqa = load(
        "nextgqa",
        write(tmp_path / "n.json", [{"id": "7_1", "video": "a/7.mp4", "question": "why", "glue": [[1, 2], [3, 4]], "duration": 9}]),
    )
    assert gqa.rows[0].windows == ((1.0, 2.0), (3.0, 4.0))
    didemo = load(
        "didemo",
        write(tmp_path / "d.json", [{"annotation_id": 5, "video": "v.mp4", "description": "d", "times": [[0, 1]], "num_segments": 6}]),
    )
    assert (didemo.rows[0].windows, didemo.rows[0].video and didemo.rows[0].video.duration) == (((0.0, 10.0),), 30.0)
    canonical = {"id": "s", "task": "vtg", "video": {"path": "v.mp4", "start": 2.0, "duration": 9.0}, "query": "q", "windows": [[1, 2]]}
    plain = load("jsonl", write_jsonl(tmp_path / "j.jsonl", [canonical, {"query": "no id", "windows": [[1, 2]]}]))
    assert plain.rows[0].video is not None
    assert (plain.rows[0].video.start, plain.rows[0].windows) == (2.0, ((1.0, 2.0),))
    assert len(plain.rejected) == 1


@pytest.mark.parametrize(
    ("windows", "reason"), [([], "no true window"), ([[3, 1]], "reversed"), ([[1]], "is \\[start, end\\]"), ([[1, "x"]], "not a number")]
)
def test_unusable_rows_are_named(tmp_path: Path, windows: list[object], reason: str) -> None:
    with pytest.raises(DataError, match=f"no usable query; first: .*j.jsonl:1: .*{reason}"):
        load("jsonl", write_jsonl(tmp_path / "j.jsonl", [{"qid": 1, "query": "q", "relevant_windows": windows}]))


def test_digest_is_about_the_queries_not_their_names() -> None:
    a, b = sample("a", [(1, 2)], video="x/v.mp4", query="p  q"), sample("b", [(3, 4)], video="v2.mp4")
    renamed = sample("other", [(1, 2)], video="v.mkv", query="p q")
    assert gt_digest([a, b]) == gt_digest([b, renamed])
    assert gt_digest([a, b]) != gt_digest([a, sample("b", [(3, 4.1)], video="v2.mp4")])


def test_activitynet_splits_are_told_apart(shared_dir: Path) -> None:
    folder = shared_dir / "data/activitynet"
    assert len(load("activitynet_val1", folder / "videox_val_first400.json").rows) == 1439
    assert load("activitynet_val1", folder / "taro_val_1_first1000.jsonl").notes == ()
    assert len(load("activitynet_val2", folder / "videox_test_first400.json").rows) == 1445
    for name, file in (("activitynet_val2", "videox_val_first400.json"), ("activitynet_val1", "videox_test_first400.json")):
        with pytest.raises(DataError, match="the two are different tests"):
            load(name, folder / file)


def test_unknown_activitynet_queries_are_admitted(tmp_path: Path) -> None:
    truth = load("activitynet_val1", write(tmp_path / "v.json", {"v_x": {"duration": 9, "timestamps": [[1, 2]], "sentences": ["new"]}}))
    assert "could not be checked" in truth.notes[0]
    assert not MARKS["val_1"] & MARKS["val_2"]


def test_same_queries_in_two_copies_have_one_digest(shared_dir: Path) -> None:
    folder = shared_dir / "data/tvgbench"
    theirs, taro = load("tvgbench", folder / "timer1_tvgbench.json"), load("tvgbench", folder / "taro_tvgbench.jsonl")
    assert gt_digest(theirs.rows) == gt_digest(taro.rows)
    assert theirs.aliases["test7"] == "tvgbench_7"
    assert taro.aliases["tvgbench_7"] == "test7"


def test_lint_by_hand(tmp_path: Path) -> None:
    rows = [
        {"qid": 1, "vid": "a_0.0_30.0", "query": "q", "duration": 30.0, "relevant_windows": [[1, 31], [2, 2]]},
        {"qid": 2, "vid": "a_0.0_30.0", "query": " q ", "duration": 26.0, "relevant_windows": [[1, 26.01], [1, 26.01], [1, 26.5]]},
        {"qid": 3, "vid": "b", "query": "q", "relevant_windows": [[1, 2]]},
        {"qid": 4, "vid": "b", "query": "q", "relevant_windows": []},
    ]
    result = lint_benchmark("jsonl", write_jsonl(tmp_path / "t.jsonl", rows))
    assert result["counts"] == {
        "unusable": 1,
        "end_beyond_duration": 4,
        "float_noise": 2,
        "zero_length": 1,
        "same_windows_twice": 1,
        "no_duration": 1,
        "duplicate_query": 1,
        "several_durations": 1,
        "duration_differs_from_name": 1,
    }
    assert len(lint_rows(result)) == 1 + len(result["counts"])


def test_lint_of_the_published_files(shared_dir: Path) -> None:
    data = shared_dir / "data"
    assert lint_benchmark("charades_sta", data / "charades_sta/videox_charades_sta_test.txt")["counts"]["end_beyond_duration"] == 562
    tvg = lint_benchmark("tvgbench", data / "tvgbench/timer1_tvgbench.json")["counts"]
    assert (tvg["end_beyond_duration"], tvg["zero_length"], tvg["duplicate_query"]) == (27, 11, 1)
    assert lint_benchmark("qvhighlights", data / "qvhighlights/highlight_val_release.jsonl")["counts"] == {"duration_differs_from_name": 39}


def test_lint_compares_with_the_videos(shared_dir: Path, tmp_path: Path) -> None:
    rows = [
        {"qid": n, "video_file": f"{n}.mp4", "query": "q", "duration": d, "relevant_windows": [[1, 2]]}
        for n, d in (("3MSZA", 40.0), ("none", 9.0))
    ]
    counts = lint_benchmark("jsonl", write_jsonl(tmp_path / "t.jsonl", rows), videos=shared_dir / "data/videos")["counts"]
    assert counts == {"duration_differs_from_file": 1, "file_missing": 1}


def test_difficulty_of_time_r1s_training_rows(shared_dir: Path) -> None:
    """Stored difficulty = 100 x IoU(pred, timestamp) for all 2,500 rows."""
    rows = json.loads((shared_dir / "data/tvgbench/timer1_train_2k5.json").read_text())
    pred, truth = (np.array([row[key] for row in rows], dtype=np.float64) for key in ("pred", "timestamp"))
    assert len(rows) == 2500
    np.testing.assert_allclose(100 * hull_iou(pred, truth), [row["difficulty"] for row in rows], atol=1e-9)
