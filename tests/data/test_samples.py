"""Canonical rows: everything wrong is named with its row, nothing is lost between dict and Sample."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.load import load_samples
from vtgrl.data.samples import SAMPLE_KEYS, LoadReport, sample_from_dict, sample_to_dict

ROW: dict[str, Any] = {
    "id": "a",
    "task": "vtg",
    "video": {"path": "a.mp4", "start": 0.0, "end": 12.5, "duration": 12.5, "maybe_cut": True},
    "query": "the dog jumps",
    "windows": [[1.0, 2.5], [4, 5]],
    "captions": [{"start": 0, "end": 1.5, "text": "a dog"}],
    "split": "val",
    "source": "mine",
    "meta": {"n": 3, "deep": {"x": [1, 2]}},
}


def source(path: Path, **config: Any) -> LoadReport:
    entry = get("source", "jsonl")
    return load_samples(Component("source", "jsonl", entry.config(**config)), path=path)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_row_becomes_a_sample_and_a_row_again() -> None:
    sample = sample_from_dict(ROW, where="f:1")
    assert sample == Sample(
        id="a",
        task="vtg",
        query="the dog jumps",
        video=VideoRef("a.mp4", 0.0, 12.5, 12.5, maybe_cut=True),
        windows=((1.0, 2.5), (4.0, 5.0)),
        captions=(Caption(0.0, 1.5, "a dog"),),
        split="val",
        source="mine",
        meta={"n": 3, "deep": {"x": [1, 2]}},
    )
    assert sample_from_dict(json.loads(json.dumps(sample_to_dict(sample))), where="f:1") == sample


def test_short_rows_stay_short() -> None:
    row = {"id": "q", "task": "text", "query": "2 + 2?", "answer": "4", "answer_kind": "number", "split": "train"}
    assert sample_to_dict(sample_from_dict(row, where="f:1")) == row
    qa = {"id": "q", "task": "qa", "video": {"path": "a.mp4"}, "query": "who?", "options": ["a", "b"], "answer": "a", "split": "train"}
    assert sample_to_dict(sample_from_dict(qa, where="f:1")) == qa


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "'id' is missing"),
        ({"id": " "}, "'id' must be a text"),
        ({"id": 7}, "'id' must be a text"),
        ({"task": "grounding"}, "task 'grounding': write one of vtg, qa, text"),
        ({"querry": "x"}, "unknown key 'querry'; did you mean 'query'"),
        ({"query": ""}, "'query' must be a text"),
        ({"video": None}, "task 'vtg' needs \"video\""),
        ({"video": "a.mp4"}, '"video" is an object'),
        ({"video": {"path": "a.mp4", "strat": 1}}, "video: unknown key 'strat'; did you mean 'start'"),
        ({"video": {"path": "a.mp4", "start": -1.0}}, "video start -1.0 is negative"),
        ({"video": {"path": "a.mp4", "start": 3.0, "end": 3.0}}, "video end 3.0 is not after its start 3.0"),
        ({"video": {"path": "a.mp4", "end": 0.0}}, "video end 0.0 is not after its start 0.0"),
        ({"video": {"path": "a.mp4", "duration": 0}}, "video duration 0.0 is not positive"),
        ({"video": {"path": "a.mp4", "duration": "12"}}, "video: duration: '12' is not a number"),
        ({"video": {"path": "a.mp4", "duration": True}}, "video: duration: True is not a number"),
        ({"video": {"path": "a.mp4", "maybe_cut": 1}}, "maybe_cut is true or false"),
        ({"windows": [[1.0, math.nan]]}, r"windows\[0\]: nan is not finite"),
        ({"windows": [[1.0, math.inf]]}, r"windows\[0\]: inf is not finite"),
        ({"windows": [[1, 2], [3, 2]]}, r"windows\[1\]: start 3.0 is after end 2.0"),
        ({"windows": [[-1, 2]]}, r"windows\[0\]: start -1.0 is negative"),
        ({"windows": [[1, 2, 3]]}, r"windows\[0\]: a window is \[start, end\]"),
        ({"windows": [1, 2]}, r"windows\[0\]: a window is \[start, end\]"),
        ({"windows": "1-2"}, "'windows' is a list, not str"),
        ({"options": ["a", 1]}, r"options\[1\] must be a text"),
        ({"captions": [{"start": 0, "text": "x"}]}, r"captions\[0\]: None is not a number"),
        ({"captions": [{"start": 0, "end": 1, "text": "x", "by": "me"}]}, r"captions\[0\]: unknown key 'by'"),
        ({"meta": [1]}, '"meta" is an object'),
        ({"answer": 4}, "'answer' must be a text"),
    ],
)
def test_faults_are_named_with_file_and_row(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"^rows\.jsonl:17: .*{message}") as caught:
        sample_from_dict({**ROW, **change}, where="rows.jsonl:17")
    assert "\n" not in str(caught.value)


def test_zero_length_is_kept_and_marked() -> None:
    sample = sample_from_dict({**ROW, "windows": [[3.0, 3.0]]}, where="f:1")
    assert sample.windows == ((3.0, 3.0),)
    assert sample.meta["zero_length"] is True
    assert "zero_length" not in sample_from_dict(ROW, where="f:1").meta


def test_file_reports_every_row_it_cannot_use(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.jsonl",
        ROW,
        {**ROW, "id": "b", "windows": [[1.0, 99.0], [2.0, 3.0]]},  # ends after the clip: clipped
        {**ROW, "id": "c", "windows": [[12.5, 14.0]]},  # starts at the clip's end
        {**ROW, "id": "a"},  # the same id again
        {**ROW, "id": "d", "color": "red"},
        {**ROW, "id": "e", "windows": [[12.0, 12.505]]},  # float noise
        {**ROW, "id": "f", "windows": [[2.0, 2.0]]},
    )
    report = source(path)
    assert [s.id for s in report.samples] == ["a", "b", "e", "f"]
    assert report.rejected == (
        (f"{path}:3", "window [12.5, 14.0] starts after the clip's end (12.5 s)"),
        (f"{path}:4", f"id 'a' is already used at {path}:1"),
        (f"{path}:5", f"unknown key 'color'; keys are: {', '.join(SAMPLE_KEYS)}"),
    )
    assert dict(report.counts) == {"clipped": 2, "clipped_noise": 1, "zero_length": 1, "rejected": 3}
    assert report.samples[1].windows == ((1.0, 12.5), (2.0, 3.0))
    assert report.samples[1].meta["unclipped_windows"] == [[1.0, 99.0], [2.0, 3.0]]
    assert report.samples[2].windows == ((12.0, 12.5),)
    assert "unclipped_windows" not in report.samples[2].meta
    assert report.notes[0] == "1 rows have a window that ends after the clip; ended with it: row 2 by 86.50 s"
    assert len(report.notes) == 3


def test_a_rejected_row_does_not_take_its_id(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {**ROW, "windows": [[50, 60]]}, ROW)
    assert [s.id for s in source(path).samples] == ["a"]


def test_paths_start_from_the_videos_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROW, {**ROW, "id": "b", "video": {"path": "/far/b.mp4"}})
    report = source(path)
    assert [s.video.path for s in report.samples if s.video] == [str(tmp_path / "a.mp4"), "/far/b.mp4"]
    component = Component("source", "jsonl", get("source", "jsonl").config())
    moved = load_samples(component, path=path, videos="/films", limit=1)
    assert [s.video.path for s in moved.samples if s.video] == ["/films/a.mp4"]


def test_split_is_chosen_without_rejecting_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROW, {**ROW, "id": "b", "split": "train"})
    report = source(path, split="train")
    assert ([s.id for s in report.samples], report.rejected) == (["b"], ())


def test_files_that_hold_nothing_usable(tmp_path: Path) -> None:
    bad = write(tmp_path / "rows.jsonl", {"id": "a"}, {"id": "b"})
    with pytest.raises(DataError, match=r"rows\.jsonl: no usable row; first: .*rows\.jsonl:1: 'task' is missing"):
        source(bad)
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(DataError, match=r"empty\.jsonl: no usable row; it holds no rows"):
        source(empty)
    with pytest.raises(DataError, match=r"gone\.jsonl: No such file"):
        source(tmp_path / "gone.jsonl")
    (tmp_path / "broken.jsonl").write_text(json.dumps(ROW) + "\n{half\n")
    with pytest.raises(DataError, match=r"broken\.jsonl:2: not JSON"):
        source(tmp_path / "broken.jsonl")
    with pytest.raises(ConfigError, match=r"data\.path is empty"):
        load_samples(Component("source", "jsonl", get("source", "jsonl").config()), path="")


def test_two_rows_of_one_id_are_refused_whatever_the_source(tmp_path: Path) -> None:
    """A source of one's own need not look: two groups of a step, two draws or two records would be taken for one."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from vtgrl.core.types import Sample\n"
        "from vtgrl.data.samples import LoadReport\n"
        "def source(path, *, videos, config):\n"
        "    return LoadReport(tuple(Sample(id=i, task='text', query='q') for i in 'abca'))\n"
    )
    name = f"{file}:source"
    with pytest.raises(DataError, match="samples 1 and 4 share the id 'a'"):
        load_samples(Component("source", name, get("source", name).config()), path=file)
