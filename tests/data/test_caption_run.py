"""Rows to captioned rows over real HTTP with real clips: one request a clip, failures counted, resumed, within a budget."""

from __future__ import annotations

import base64
import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.data.caption_kit import GOOD, KEY, VIDEO, lines, resets, row, rows_file, run, says, serving, status
from vtgrl.core.errors import ConfigError, DataError, Interrupted, RunError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Caption
from vtgrl.data.caption.cost import Prices
from vtgrl.data.caption.frames import PROMPT_VERSION, REFUSED_TEXT
from vtgrl.data.caption.journal import Journal
from vtgrl.data.load import load_samples

CAPTIONS = [Caption(0.5, 2.0, "a bar moves."), Caption(2.0, 3.25, "it stops.")]
THREE = {"a": 4, "b": 5, "c": 6}


def captioned(folder: Path) -> dict[str, list[Caption]]:
    """id -> captions, read back with the source that training uses."""
    source = Component("source", "jsonl", get("source", "jsonl").config())
    return {s.id: list(s.captions) for s in load_samples(source, path=folder / "captioned.jsonl").samples}


# --- what goes out and comes back --------------------------------------------------------------------------------


def test_rows_come_back_with_captions_and_nothing_else_changed(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE, [row("a", split="val", meta={"x": 1}), row("b", video={"start": 1.0, "end": 4.0}), row("c")])
    with serving() as stub:
        result = run(path, stub.url)
    assert captioned(tmp_path) == {"a": CAPTIONS, "b": [CAPTIONS[0], Caption(2.0, 3.0, "it stops.")], "c": CAPTIONS}
    before, after = lines(path), lines(tmp_path / "captioned.jsonl")
    assert [{k: v for k, v in line.items() if k not in ("captions", "split")} for line in after] == [
        {k: v for k, v in line.items() if k != "split"} for line in before
    ]
    assert [line["split"] for line in after] == ["val", "train", "train"]
    assert stub.asked() == [4.0, 3.0, 6.0]
    wanted = {"rows": 3, "rows_written": 3, "rows_with_captions": 3, "clips": 3, "clips_captioned": 3, "clips_failed": {}, "events": 6}
    assert {key: result[key] for key in wanted} == wanted
    assert (result["requests"], result["prompt_tokens"], result["completion_tokens"]) == (3, 300, 30)
    assert not (tmp_path / "captioned.failures.jsonl").exists()


def test_the_model_sees_each_frame_behind_its_time_and_never_the_query(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 6})
    with serving() as stub:
        run(path, stub.url)
    (request,) = stub.requests
    assert "the bar moves" not in json.dumps(request.body)
    parts = request.parts
    images = [i for i, part in enumerate(parts) if part["type"] == "image_url"]
    assert [parts[i - 1]["text"] for i in images] == ["0.00 s:", "1.20 s:", "2.40 s:", "3.50 s:", "4.70 s:", "5.90 s:"]
    assert "6 frames" in request.text
    head, data = request.images[-1].split(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert (head, image.format, image.size) == ("data:image/jpeg;base64", "JPEG", (56, 56))
    red = np.asarray(image)[:10, :10].mean((0, 1))
    assert red[0] > 150
    assert red[1:].max() < 60


def test_frames_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 30})
    with serving() as stub:
        run(path, stub.url)
    assert len(stub.requests[0].images) == 8


def test_a_clip_is_asked_about_once_however_many_rows_mean_it(tmp_path: Path) -> None:
    rows = [
        row("a", id="1"),
        row("a", id="2", query="another"),
        row("a", id="3", video={"start": 0.0}),
        row("a", id="4", video={"duration": 4.0}),
        row("a", id="5", video={"end": 2.0}),
        row("b", id="6"),
        {"id": "7", "task": "text", "query": "no clip"},
    ]
    path = rows_file(tmp_path, {"a": 4, "b": 5}, rows)
    with serving() as stub:
        result = run(path, stub.url)
    assert stub.asked() == [4.0, 2.0, 5.0]
    found = captioned(tmp_path)
    assert [len(found[str(i)]) for i in range(1, 8)] == [2, 2, 2, 2, 1, 2, 0]
    assert (result["clips"], result["rows_without_video"]) == (3, 1)


def test_rows_that_have_captions_keep_them_unless_told(tmp_path: Path) -> None:
    own = [{"start": 0.0, "end": 1.0, "text": "mine."}]
    path = rows_file(tmp_path, {"a": 4, "b": 5}, [row("a", captions=own), row("b")])
    with serving() as stub:
        assert run(path, stub.url)["rows_captioned_before"] == 1
        assert captioned(tmp_path) == {"a": [Caption(0.0, 1.0, "mine.")], "b": CAPTIONS}
        run(path, stub.url, again=True)
    assert stub.asked() == [5.0, 4.0]
    assert captioned(tmp_path) == {"a": CAPTIONS, "b": CAPTIONS}


def test_times_are_clipped_and_ordered_and_odd_events_counted(tmp_path: Path) -> None:
    events = [
        {"start": 3, "end": 99, "event": "late."},
        {"start": -1, "end": 1, "event": "early."},
        {"start": 50, "end": 60, "event": "never."},
        {"start": 2, "end": 2, "event": "nothing."},
    ]
    path = rows_file(tmp_path, {"a": 4})
    with serving(says(events)) as stub:
        result = run(path, stub.url)
    assert captioned(tmp_path) == {"a": [Caption(0.0, 1.0, "early."), Caption(3.0, 4.0, "late.")]}
    assert result["events_dropped"] == {"outside the clip": 1, "no length": 1}


# --- answers that are no good, clips that fail -------------------------------------------------------------------


def test_a_malformed_answer_is_asked_for_again_with_the_reason(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4})
    with serving(says("not json", raw=True), says([{"start": "0:01", "end": 2, "event": "x"}])) as stub:
        result = run(path, stub.url)
    assert captioned(tmp_path) == {"a": CAPTIONS}
    assert (result["requests"], result["asked_again"]) == (3, {"invalid answer": 2})
    first, second, third = (request.parts for request in stub.requests)
    said = "event 1: \"start\" is not a number of seconds but '0:01'"
    assert second[:-1] == third[:-1] == first
    assert "not JSON" in second[-1]["text"]
    assert third[-1]["text"] == REFUSED_TEXT.format(reason=said)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (says("I cannot", raw=True), r"it is not JSON (Expecting value, line 1 column 1) (3 answers)"),
        (says('{"events": [{"start"', raw=True, finish="length"), "it was cut at the longest answer; be shorter"),
        (says(None, raw=True, refusal="no people, please"), "the model refuses: no people, please"),
        (says([]), "it lists no event"),
    ],
)
def test_a_clip_without_a_valid_answer_is_a_counted_failure_and_stops_nothing(tmp_path: Path, act: Any, reason: str) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(says(GOOD), act, act, act) as stub:
        result = run(path, stub.url)
    assert captioned(tmp_path) == {"a": CAPTIONS, "b": [], "c": CAPTIONS}
    assert (result["clips_failed"], result["requests"]) == ({"answer": 1}, 5)
    (failure,) = lines(tmp_path / "captioned.failures.jsonl")
    assert reason in failure.pop("reason")
    assert failure == {"video": str(tmp_path / "b.mp4"), "start": None, "end": None, "kind": "answer", "requests": 3, "rows": ["b"]}


def test_failures_of_every_kind_and_rows_dropped_on_request(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4, "b": 5, "c": 6}, [row("a"), row("gone"), row("b"), row("torn"), row("c")])
    (tmp_path / "torn.mp4").write_bytes(b"\0" * 500)
    with serving(says(GOOD), status(400, "too long"), status(500), status(500)) as stub:
        result = run(path, stub.url, failed="drop", server={"retries": 1})
    assert captioned(tmp_path) == {"a": CAPTIONS}
    assert result["clips_failed"] == {"video": 2, "refused": 1, "server": 1}
    assert (result["rows_dropped"], result["rows_written"], result["requests"]) == (4, 1, 4)
    failures = {line["rows"][0]: line["reason"] for line in lines(tmp_path / "captioned.failures.jsonl")}
    assert set(failures) == {"gone", "b", "torn", "c"}
    assert "too long" in failures["b"]


def test_not_one_clip_captioned_is_an_error_and_no_output(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4, "b": 5})
    with serving(act=says("?", raw=True)) as stub, pytest.raises(RunError, match=r"not one of 2 clips got captions, first: it is not JSON"):
        run(path, stub.url)
    assert not (tmp_path / "captioned.jsonl").exists()
    assert len(lines(tmp_path / "captioned.failures.jsonl")) == 2


def test_failed_clips_are_asked_about_again_in_the_next_run(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(says(GOOD), status(400)) as stub:
        assert run(path, stub.url)["clips_failed"] == {"refused": 1}
        result = run(path, stub.url)
    assert stub.asked() == [4.0, 5.0, 6.0, 5.0]
    assert (result["clips_failed"], result["done_before"], result["requests"]) == ({}, 2, 4)
    assert captioned(tmp_path) == dict.fromkeys("abc", CAPTIONS)
    assert not (tmp_path / "captioned.failures.jsonl").exists()


# --- a server that is wrong, or goes -----------------------------------------------------------------------------


def test_a_wrong_key_stops_at_once_and_keeps_what_is_done(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(says(GOOD), status(401, "key expired")) as stub:
        with pytest.raises(ConfigError, match="key expired"):
            run(path, stub.url)
        assert len(stub.requests) == 2
        assert not (tmp_path / "captioned.jsonl").exists()
        assert len(lines(tmp_path / "captioned.journal.jsonl")) == 1
        run(path, stub.url)
    assert stub.asked() == [4.0, 5.0, 5.0, 6.0]


def test_a_server_that_never_answered_ends_the_run_with_the_first_clip(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(act=resets) as stub, pytest.raises(RunError, match=r"nothing answers there.*is the server running"):
        run(path, stub.url, server={"retries": 2})
    assert len(stub.requests) == 3


def test_a_server_that_has_gone_ends_the_run(tmp_path: Path) -> None:
    path = rows_file(tmp_path, dict.fromkeys("abcdef", 4))
    with serving(says(GOOD), status(400), says(GOOD), act=status(503, "shutting down")) as stub:
        with pytest.raises(RunError, match=r"no answer to 2 clips in a row, last: status 503: shutting down"):
            run(path, stub.url, server={"retries": 0}, captioner={"give_up": 2})
        assert len(stub.requests) == 5
        stub.act = says(GOOD)
        assert run(path, stub.url)["done_before"] == 2


def test_many_clips_at_a_time(tmp_path: Path) -> None:
    """Four requests are in flight together before the first is answered."""
    path = rows_file(tmp_path, {name: 4 + i for i, name in enumerate("abcdefgh")})
    together = threading.Barrier(4)

    def act(handler: Any, request: Any) -> None:
        together.wait(30)
        says([{"start": 0, "end": 1, "event": f"clip of {request.seconds:g} s."}])(handler, request)

    with serving(act=act) as stub:
        result = run(path, stub.url, captioner={"concurrency": 4})
    assert sorted(stub.asked()) == [4.0 + i for i in range(8)]
    assert {name: c[0].text for name, c in captioned(tmp_path).items()} == {n: f"clip of {4 + i} s." for i, n in enumerate("abcdefgh")}
    assert result["clips_captioned"] == 8


# --- budget ------------------------------------------------------------------------------------------------------

CENT = Prices(prompt=50.0, completion=500.0)
"""An answer (100 and 10 tokens) costs 0.01."""


def test_cost_is_summed_over_all_runs(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(says("?", raw=True), says(GOOD)) as stub:
        assert run(path, stub.url, prices=CENT, limit=1)["cost"] == pytest.approx(0.02)
        assert run(path, stub.url, prices=CENT)["cost"] == pytest.approx(0.04)
        assert run(path, stub.url)["cost"] is None


def test_the_budget_is_kept_and_can_be_raised(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving() as stub:
        with pytest.raises(RunError, match=r"0\.0200 of --max-cost 0\.015 is spent; 2 of 3 clips are in .*captioned\.journal\.jsonl"):
            run(path, stub.url, prices=CENT, max_cost=0.015)
        assert len(stub.requests) == 2
        with pytest.raises(RunError, match="is spent"):
            run(path, stub.url, prices=CENT, max_cost=0.015)
        assert len(stub.requests) == 2
        assert run(path, stub.url, prices=CENT, max_cost=1.0)["clips_captioned"] == 3
    assert stub.asked() == [4.0, 5.0, 6.0]


def test_a_budget_needs_prices_and_token_counts(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving(act=says(GOOD, usage=False)) as stub:
        with pytest.raises(ConfigError, match="--max-cost needs --price-in"):
            run(path, stub.url, max_cost=1.0)
        with pytest.raises(RunError, match="tells no token counts"):
            run(path, stub.url, prices=CENT, max_cost=1.0)
        assert len(stub.requests) == 1
        assert run(path, stub.url, prices=CENT)["unmetered"] == 3


# --- the journal -------------------------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rows_file(tmp_path, THREE)
    add = Journal.add

    def add_and_stop(self: Journal, *args: Any) -> None:
        add(self, *args)
        if len(lines(self.path)) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", add_and_stop)
    with serving() as stub:
        with pytest.raises(Interrupted, match=r"of 3 clips are in .* the same command goes on from there"):
            run(path, stub.url)
        asked = len(lines(tmp_path / "captioned.journal.jsonl"))
        monkeypatch.undo()
        assert run(path, stub.url)["done_before"] == asked
    assert sorted(stub.asked()) == [4.0, 5.0, 6.0]


def test_a_torn_line_is_asked_about_again(tmp_path: Path) -> None:
    path = rows_file(tmp_path, THREE)
    with serving() as stub:
        run(path, stub.url)
        journal = tmp_path / "captioned.journal.jsonl"
        whole = journal.read_bytes()
        for torn in (whole[:-1], whole[:-30]):
            journal.write_bytes(torn)
            assert run(path, stub.url)["done_before"] == 2
            assert journal.read_bytes() == whole
    assert stub.asked() == [4.0, 5.0, 6.0, 6.0, 6.0]


def test_another_model_other_frames_and_a_changed_file_are_asked_about_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rows_file(tmp_path, {"a": 4})
    with serving() as stub:
        for changed in range(4):
            if changed == 1:
                monkeypatch.setattr("tests.data.caption_kit.server_mark", lambda model: "another")
            if changed == 2:
                monkeypatch.undo()
                monkeypatch.setattr("tests.data.caption_kit.VIDEO", replace(VIDEO, max_frames=4))
            if changed == 3:
                monkeypatch.undo()
                rows_file(tmp_path, {"a": 5})
            assert run(path, stub.url)["done_before"] == 0
        assert run(path, stub.url)["done_before"] == 1
    assert len(stub.requests) == 4


def test_the_prompt_is_part_of_the_mark() -> None:
    from vtgrl.data.caption.remote import server_mark

    assert server_mark("m") != server_mark("n")
    assert len(PROMPT_VERSION) == 16


def test_a_foreign_or_broken_journal_is_named(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4})
    journal = tmp_path / "captioned.journal.jsonl"
    for text in ("what?\n", "[1]\n", '{"clip": "x"}\n', "what?\n{"):
        journal.write_text(text)
        with pytest.raises(DataError, match=r"captioned\.journal\.jsonl:1: not a line of a caption journal"):
            run(path, "http://127.0.0.1:1/v1")
        assert journal.read_text() == text


def test_two_runs_never_write_one_journal(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4})
    first = Journal(tmp_path / "captioned.journal.jsonl", run="x")
    with pytest.raises(ConfigError, match="another run is writing it"):
        run(path, "http://127.0.0.1:1/v1")
    first.close()
    with serving() as stub:
        run(path, stub.url)


def test_outputs_that_would_destroy_something(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4})
    out = tmp_path / "captioned.jsonl"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists and no journal"):
        run(path, "http://127.0.0.1:1/v1")
    path.rename(out)
    with pytest.raises(ConfigError, match="is the file that is read"):
        run(out, "http://127.0.0.1:1/v1")


def test_an_output_that_cannot_be_written_is_known_before_anything_is_asked(tmp_path: Path) -> None:
    path = rows_file(tmp_path, {"a": 4})
    (tmp_path / "captioned.journal.jsonl").mkdir()
    with serving() as stub, pytest.raises(RunError, match=r"cannot write .*captioned\.journal\.jsonl"):
        run(path, stub.url)
    assert not stub.requests


def test_the_key_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    path = rows_file(tmp_path, {"a": 4, "b": 5})
    with serving(says(GOOD), status(400, f"key {KEY} may not")) as stub:
        result = run(path, stub.url)
    assert {request.headers["authorization"] for request in stub.requests} == {f"Bearer {KEY}"}
    files = [file for file in tmp_path.iterdir() if file.suffix == ".jsonl"]
    assert len(files) == 4
    assert all(KEY not in file.read_text() for file in files)
    assert KEY not in json.dumps(result)
