"""Published annotation files, on small copies of their layout made here and on the real files with their known counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtgrl.core.errors import DataError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Caption, VideoRef
from vtgrl.data.load import load_samples
from vtgrl.data.samples import LoadReport
from vtgrl.data.sources.common import below
from vtgrl.data.sources.time_r1 import parse_answer

TRAIN = {
    "video": "./dataset/timer1/videos/timerft_data/a.mp4",
    "duration": 45.7,
    "timestamp": [34.9, 41.9],
    "sentence": "a statue",
    "qid": "my|x|a|a statue",
    "video_start": None,
    "video_end": None,
    "difficulty": 50.0,
    "pred": [0.0, 3.0],
}
BENCH = {
    "path": "./dataset/timer1/videos/tvgbench_data/k.mp4",
    "question": "someone sits",
    "answer": "13.4-28.1",
    "start": None,
    "end": None,
    "duration": 30.12,
    "question_type": "video temporal grounding",
    "source": "x.json",
    "qsemtype": "Human Pose",
}
EVAL = {"qid": "test0", "query": "turn on", "duration": 31.0, "vid": "k", "relevant_windows": [[1, 2], [4, 9]], "video_file": "k.mp4"}
TARO_TRAIN = {
    "data_source": "x",
    "prompt": [{"role": "user", "content": "<video> find it"}],
    "videos": ["data/TimeR1-Dataset/tvgbench_data/k.mp4"],
    "video_start": 0.0,
    "video_end": 30.0,
    "reward_model": {"style": "rule", "ground_truth": [13.4, 28.1]},
    "extra_info": {"split": "train", "index": 7, "duration": 30.0},
    "query": "someone sits",
    "captions": ["From 0.5s to 3.0s, a man walks.", "At 4.25 s, he stops."],
}


def read(name: str, path: Path, **config: Any) -> LoadReport:
    return load_samples(Component("source", name, get("source", name).config(**config)), path=path, videos="/films")


def listed(path: Path, *rows: Any) -> Path:
    path.write_text(json.dumps(rows))
    return path


# --- Time-R1 ------------------------------------------------------------------------------------------------------


def test_time_r1_training_rows(tmp_path: Path) -> None:
    cut = {**TRAIN, "qid": "cut", "video_start": 0, "video_end": 45.7}
    report = read("time_r1", listed(tmp_path / "t.json", TRAIN, cut))
    first, second = report.samples
    assert (first.id, first.query, first.windows, first.split) == ("my|x|a|a statue", "a statue", ((34.9, 41.9),), "train")
    assert first.video == VideoRef("/films/timerft_data/a.mp4", None, None, 45.7)
    assert dict(first.meta) == {"difficulty": 50.0, "pred": [0.0, 3.0]}
    assert second.video == VideoRef("/films/timerft_data/a.mp4", 0.0, 45.7, 45.7, maybe_cut=True)


def test_time_r1_rows_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = listed(
        tmp_path / "t.json",
        TRAIN,
        {**TRAIN, "qid": "far", "timestamp": [60.0, 70.0]},
        {**TRAIN, "qid": "absurd", "timestamp": [30.0, 14220.0]},
        {**TRAIN, "qid": "back", "timestamp": [5.0, 4.0]},
        {**TRAIN, "qid": "none", "duration": None},
        {**TRAIN, "qid": "cut", "video_start": 50.0, "video_end": 40.0},
        "text",
        TRAIN,
    )
    report = read("time_r1", path)
    assert [s.id for s in report.samples] == [TRAIN["qid"], "absurd"]
    assert report.samples[1].windows == ((30.0, 45.7),)
    assert [(where.removeprefix(f"{path}:"), reason) for where, reason in report.rejected] == [
        ("item 2", "window [60.0, 70.0] starts after the clip's end (45.7 s)"),
        ("item 4", "timestamp: start 5.0 is after end 4.0"),
        ("item 5", "duration: None is not a number of seconds"),
        ("item 6", "video end 40.0 is not after its start 50.0"),
        ("item 7", "a row is a JSON object, not str"),
        ("item 8", f"id {TRAIN['qid']!r} is already used at {path}:item 1"),
    ]


def test_tvgbench_rows_keep_their_place_as_id(tmp_path: Path) -> None:
    path = listed(tmp_path / "b.json", BENCH, {**BENCH, "answer": "5"}, {**BENCH, "answer": "1e-05-3.2", "start": 0.0, "end": 30.12})
    report = read("time_r1", path)
    assert [s.id for s in report.samples] == ["tvgbench-0", "tvgbench-2"]
    assert report.samples[1].windows == ((1e-05, 3.2),)
    assert report.samples[1].video == VideoRef("/films/tvgbench_data/k.mp4", 0.0, 30.12, 30.12, maybe_cut=True)
    assert report.rejected == ((f"{path}:item 2", "answer: '5' is not \"start-end\" in seconds"),)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("13.4-28.1", (13.4, 28.1)),
        ("1e-05-2e1", (1e-05, 20.0)),
        ("1E-5 - 2", (1e-05, 2.0)),
        ("85.83-85.83", (85.83, 85.83)),
        ("0-7", (0, 7)),
    ],
)
def test_answers_with_exponents(text: str, window: tuple[float, float]) -> None:
    assert parse_answer(text, where="f:1") == window


@pytest.mark.parametrize("text", ["", "5", "5-", "-5", "1-2-3", "a-b", "7-3", "nan-1"])
def test_answers_that_are_none(text: str) -> None:
    with pytest.raises(DataError, match=r"^f:1: "):
        parse_answer(text, where="f:1")


def test_published_folders_are_replaced() -> None:
    assert below("./dataset/timer1/videos/a/b.mp4", "./dataset/timer1/videos") == "a/b.mp4"
    assert below("./dataset/timer1/videos2/b.mp4", "./dataset/timer1/videos") == "./dataset/timer1/videos2/b.mp4"
    assert below("a/b.mp4", "") == "a/b.mp4"


def test_json_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1,\n 2")
    with pytest.raises(DataError, match=r"a\.json:2: not JSON"):
        read("time_r1", tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(DataError, match=r"b\.json: expected a JSON list, got dict"):
        read("time_r1", tmp_path / "b.json")
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"c\.json: not UTF-8"):
        read("time_r1", tmp_path / "c.json")


# --- Charades-STA ----------------------------------------------------------------------------------------------------


def charades(tmp_path: Path, lines: str, lengths: str = "id,scene,length\nAAAAA,x,20.5\nBBBBB,y,10\n") -> tuple[Path, Path]:
    (tmp_path / "sta.txt").write_text(lines)
    (tmp_path / "lengths.csv").write_text(lengths)
    return tmp_path / "sta.txt", tmp_path / "lengths.csv"


def test_charades_lines(tmp_path: Path) -> None:
    path, lengths = charades(
        tmp_path,
        "AAAAA 0.0 6.9##person ## opens a door.\nAAAAA 18.0 22.1##leaves\nCCCCC 1 2##x\nBBBBB 12 13##y\nBBBBB 1 x##y\n"
        "BBBBB 1##y\n\nBBBBB 1 2## ",
    )
    report = read("charades_sta", path, csv=str(lengths))
    assert [(s.id, s.query, s.windows) for s in report.samples] == [
        ("charades_sta-1", "person ## opens a door.", ((0.0, 6.9),)),
        ("charades_sta-2", "leaves", ((18.0, 20.5),)),
    ]
    assert report.samples[0].video == VideoRef("/films/AAAAA.mp4", duration=20.5)
    assert [(where.rpartition(":")[2], reason.split(";")[0]) for where, reason in report.rejected] == [
        ("3", f"video 'CCCCC' is not in {lengths}"),
        ("4", "window [12.0, 13.0] starts after the clip's end (10.0 s)"),
        ("5", "'x' is not a number of seconds"),
        ("6", "a line is \"VIDEO START END##sentence\", not 'BBBBB 1##y'"),
        ("8", "a line is \"VIDEO START END##sentence\", not 'BBBBB 1 2## '"),
    ]


def test_charades_without_lengths(tmp_path: Path) -> None:
    path, _ = charades(tmp_path, "AAAAA 18.0 22.1##leaves")
    (sample,) = read("charades_sta", path).samples
    assert (sample.windows, sample.video) == (((18.0, 22.1),), VideoRef("/films/AAAAA.mp4"))


def test_charades_of_which_a_part_is_there(tmp_path: Path) -> None:
    path, _ = charades(tmp_path, "AAAAA 1 2##x\nBBBBB 1 2##y")
    (tmp_path / "BBBBB.mp4").touch()
    component = Component("source", "charades_sta", get("source", "charades_sta").config(present=True))
    report = load_samples(component, path=path, videos=tmp_path)
    assert [s.id for s in report.samples] == ["charades_sta-2"]
    assert report.rejected == ((f"{path}:1", f"no AAAAA.mp4 in {tmp_path}"),)


@pytest.mark.parametrize(
    ("lengths", "message"), [("id,scene\nA,x\n", "columns"), ("id,length\nA,\n", "csv:2: ''"), ("id,length\nA,0\n", "not positive")]
)
def test_charades_csv_faults(tmp_path: Path, lengths: str, message: str) -> None:
    path, csv = charades(tmp_path, "A 1 2##x", lengths)
    with pytest.raises(DataError, match=rf"lengths\.csv.*{message}|{message}"):
        read("charades_sta", path, csv=str(csv))


# --- TaRO -----------------------------------------------------------------------------------------------------------


def test_taro_jsonl(tmp_path: Path) -> None:
    rows = [
        EVAL,
        {**EVAL, "qid": 12, "video_start": 53.0, "video_end": 84.0},
        {k: v for k, v in {**EVAL, "qid": "n"}.items() if k != "video_file"},
        {**EVAL, "qid": "none", "relevant_windows": []},
        {**EVAL, "qid": True},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = read("taro", path)
    assert [s.id for s in report.samples] == ["test0", "12", "n"]
    assert report.samples[0].windows == ((1.0, 2.0), (4.0, 9.0))
    assert report.samples[0].video == VideoRef("/films/k.mp4", None, None, 31.0)
    assert report.samples[1].video == VideoRef("/films/k.mp4", 53.0, 84.0, 31.0, maybe_cut=True)
    assert report.samples[2].video == VideoRef("/films/k.mp4", None, None, 31.0)
    assert [reason for _, reason in report.rejected] == [
        '"relevant_windows" is missing or empty',
        "'qid' must be a text that is not empty, not True",
    ]


def test_taro_training_json(tmp_path: Path) -> None:
    path = listed(
        tmp_path / "t.json",
        TARO_TRAIN,
        {k: v for k, v in TARO_TRAIN.items() if k != "query"},
        {**TARO_TRAIN, "videos": ["a", "b"]},
        {**TARO_TRAIN, "extra_info": {"index": 8, "duration": 30.0}, "captions": ["he stops"]},
    )
    report = read("taro", path)
    (sample,) = report.samples
    assert (sample.id, sample.query, sample.split, sample.windows) == ("train-7", "someone sits", "train", ((13.4, 28.1),))
    assert sample.video == VideoRef("/films/tvgbench_data/k.mp4", 0.0, 30.0, 30.0, maybe_cut=True)
    assert sample.captions == (
        Caption(0.5, 3.0, "From 0.5s to 3.0s, a man walks."),
        Caption(4.25, 4.25, "At 4.25 s, he stops."),
    )
    assert [reason[:40] for _, reason in report.rejected] == [
        'no "query" (it is only inside the prompt',
        "\"videos\" holds one path, not ['a', 'b']",
        "captions[0]: states no time in seconds: ",
    ]


# --- the real files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "file", "config", "samples", "counts", "cuts"),
    [
        ("time_r1", "tvgbench/timer1_train_2k5.json", {}, 2500, (48, 14, 0), 665),
        ("time_r1", "tvgbench/timer1_tvgbench.json", {}, 800, (27, 0, 11), 252),
        ("charades_sta", "charades_sta/videox_charades_sta_test.txt", {"csv": "charades_sta/Charades_v1_test.csv"}, 3720, (562, 6, 0), 0),
        ("charades_sta", "charades_sta/videox_charades_sta_test.txt", {}, 3720, (0, 0, 0), 0),
        ("taro", "charades_sta/taro_charades_sta_test.jsonl", {}, 3720, (0, 0, 0), 0),
        ("taro", "tvgbench/taro_tvgbench.jsonl", {}, 800, (27, 0, 11), 252),
        ("taro", "activitynet/taro_val_1_first1000.jsonl", {}, 1000, (5, 5, 0), 0),
        ("taro", "qvhighlights/highlight_val_release.jsonl", {}, 1550, (0, 0, 0), 0),
        ("taro", "tacos/lighthouse_tacos_test_first500.jsonl", {}, 500, (0, 0, 0), 0),
    ],
)
def test_real_files(
    shared_dir: Path, name: str, file: str, config: dict[str, str], samples: int, counts: tuple[int, int, int], cuts: int
) -> None:
    """Counts of ../shared/specs: rows, windows past the end (of them float noise), windows without length, cut rows."""
    config = {key: str(shared_dir / "data" / value) for key, value in config.items()}
    report = read(name, shared_dir / "data" / file, **config)
    assert (len(report.samples), report.rejected) == (samples, ())
    assert tuple(report.counts[key] for key in ("clipped", "clipped_noise", "zero_length")) == counts
    assert sum(s.video is not None and s.video.maybe_cut for s in report.samples) == cuts
    assert len({s.id for s in report.samples}) == samples


def test_real_files_say_the_same(shared_dir: Path) -> None:
    """TVGBench as Time-R1 and as TaRO publish it: the same spans on the same files, row by row."""
    ours = read("time_r1", shared_dir / "data/tvgbench/timer1_tvgbench.json", strip="./dataset/timer1/videos/tvgbench_data").samples
    theirs = read("taro", shared_dir / "data/tvgbench/taro_tvgbench.jsonl").samples
    for a, b in zip(ours, theirs, strict=True):
        assert a.windows[0] == pytest.approx(b.windows[0])
        assert a.video == b.video


def test_real_cut_with_start_zero_is_kept(shared_dir: Path) -> None:
    samples = read("time_r1", shared_dir / "data/tvgbench/timer1_train_2k5.json").samples
    assert sum(s.video is not None and s.video.start == 0.0 for s in samples) == 186


# --- ActivityNet Captions -------------------------------------------------------------------------------------------


def test_activitynet_rows(tmp_path: Path) -> None:
    videos = {
        "v_a": {"duration": 55.15, "timestamps": [[0.28, 55.16], [13.79, 54.32]], "sentences": [" A man lifts. ", "He sits."]},
        "v_b": {"duration": 9.0, "timestamps": [[1.0, 2.0]], "sentences": ["x", "y"]},
        "v_c": {"duration": 9.0, "timestamps": [[4.0, 2.0], [9.5, 9.8]], "sentences": ["x", "y"]},
        "v_d": {"duration": 9.0},
        "v_e": "text",
    }
    path = tmp_path / "train.json"
    path.write_text(json.dumps(videos))
    report = read("activitynet", path)
    assert [(s.id, s.query, s.windows, s.split) for s in report.samples] == [
        ("v_a_0", "A man lifts.", ((0.28, 55.15),), "train"),
        ("v_a_1", "He sits.", ((13.79, 54.32),), "train"),
    ]
    assert report.samples[0].video == VideoRef("/films/v_a.mp4", duration=55.15)
    assert [(where.removeprefix(f"{path}:"), reason) for where, reason in report.rejected] == [
        ("v_b:0", "1 timestamps for 2 sentences"),
        ("v_b:1", "1 timestamps for 2 sentences"),
        ("v_c:0", "start 4.0 is after end 2.0"),
        ("v_c:1", "window [9.5, 9.8] starts after the clip's end (9.0 s)"),
        ("v_d:0", "0 timestamps for 0 sentences"),
        ("v_e:0", "a row is a JSON object, not str"),
    ]
    with pytest.raises(DataError, match=r"no v_a\.mp4 in /films"):
        read("activitynet", path, present=True)
    path.write_text("[]")
    with pytest.raises(DataError, match="expected a JSON object of videos, got list"):
        read("activitynet", path)


def test_activitynet_published_files(shared_dir: Path) -> None:
    report = read("activitynet", shared_dir / "data" / "activitynet" / "videox_val_first400.json")
    assert (len(report.samples), report.rejected, report.counts["clipped_noise"]) == (1439, (), 10)
