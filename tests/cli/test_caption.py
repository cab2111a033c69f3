"""`vtgrl data caption`: the command, killed and interrupted and run again, against a local server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.data.caption_kit import GOOD, KEY, lines, row, rows_file, says, serving, status, waits_for

FRAMES = ("--max-frames", "8", "--frame-size", "56")
THREE = {"a": 4, "b": 5, "c": 6}


def command(path: Path, url: str, *more: str) -> list[str]:
    server = ("--openai-base-url", url, "--model", "m", "--concurrency", "1")
    return ["data", "caption", str(path), "--out", str(path.parent / "captioned.jsonl"), *server, *FRAMES, *more]


@contextmanager
def started(args: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which is ended with the block."""
    env = {**os.environ, "OPENAI_API_KEY": KEY}
    process = subprocess.Popen(
        [sys.executable, "-m", "vtgrl", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_one_json_document_and_a_file_to_train_with(cli, tmp_path):
    path = rows_file(tmp_path, THREE)
    with serving(says("?", raw=True), says(GOOD), says(GOOD), status(400, "no such luck")) as stub:
        done = cli(*command(path, stub.url, "--json", "--price-in", "50", "--price-out", "500"))
        assert done.code == 0
        result = json.loads(done.out)
        assert (result["clips_captioned"], result["clips_failed"], result["cost"]) == (2, {"refused": 1}, pytest.approx(0.03))
        assert result["asked_again"] == {"invalid answer": 1}
        assert result["train_with"] == f"data.source=jsonl data.path={tmp_path / 'captioned.jsonl'} data.videos={tmp_path}"
        assert "no such luck" in done.err
        assert cli("data", "check", str(tmp_path / "captioned.jsonl")).code == 0
        shown = dict(line.split(maxsplit=1) for line in cli(*command(path, stub.url)).out.splitlines())
    assert (shown["clips_captioned"], shown["clips_failed"], shown["done_before"]) == ("3", "none", "2")


def test_strict_is_exit_1_when_a_clip_failed(cli, tmp_path):
    path = rows_file(tmp_path, THREE)
    with serving(says(GOOD), status(400)) as stub:
        done = cli(*command(path, stub.url, "--strict", "--failed", "drop", "--json"))
        assert (done.code, json.loads(done.out)["rows_dropped"]) == (1, 1)
        assert [line["id"] for line in lines(tmp_path / "captioned.jsonl")] == ["a", "c"]
        assert cli(*command(path, stub.url, "--strict")).code == 0


def test_the_form_of_the_issue_and_other_sources(cli, tmp_path):
    """`--source FILE` is the same as `FILE --source jsonl`."""
    path = rows_file(tmp_path, {"a": 4}, [row("a", split="val"), row("a", id="2")])
    rest = ["--openai-base-url", "URL", "--model", "m", *FRAMES, "--json"]
    with serving() as stub:
        rest[1] = stub.url
        done = cli("data", "caption", "--source", str(path), "--videos", str(tmp_path), "--out", str(tmp_path / "one.jsonl"), *rest)
        assert json.loads(done.out)["rows"] == 2
        done = cli("data", "caption", str(path), "split=val", "--out", str(tmp_path / "two.jsonl"), *rest)
        assert json.loads(done.out)["rows"] == 1
        charades = tmp_path / "charades_sta_test.txt"
        charades.write_text("a 0.5 2.0##the bar moves.\n")
        done = cli("data", "caption", str(charades), "-s", "charades_sta", "--out", str(tmp_path / "three.jsonl"), *rest)
        assert (done.code, json.loads(done.out)["rows_with_captions"]) == (0, 1)
    assert len(stub.requests) == 3


def test_a_dry_run_asks_and_writes_nothing(cli, tmp_path):
    rows = [row("a", video={"duration": 4.0}), row("a", id="2", video={"duration": 4.0}), row("b"), row("c")]
    path = rows_file(tmp_path, THREE, rows)
    before = sorted(tmp_path.iterdir())
    with serving() as stub:
        prices = ("--price-in", "1", "--price-out", "10", "--max-tokens", "1000", "--json")
        result = json.loads(cli(*command(path, stub.url, "--dry-run", *prices)).out)
        assert not stub.requests
        assert sorted(tmp_path.iterdir()) == before
        assert (result["rows"], result["clips"], result["requests"], result["frames_at_most"]) == (4, 3, 3, 4 + 8 + 8)
        assert result["completion_tokens_at_most"] == 3000
        assert 20 * 4 < result["prompt_tokens_about"] < 2000
        assert result["cost_at_most"] == pytest.approx(result["prompt_tokens_about"] * 1e-6 + 3000 * 10e-6)
        assert cli(*command(path, stub.url, "--limit", "1")).code == 0
        assert json.loads(cli(*command(path, stub.url, "--dry-run", "--json")).out)["requests"] == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--openai-base-url", ""), "say who writes"),
        (("--engine", "hf"), "say who writes"),
        (("--openai-base-url", "", "--engine", "hf", "--rpm", "3"), "--rpm is for a server; leave it out"),
        (("--batch", "3"), "--batch is for a local model; leave it out"),
        (("--price-in", "1"), "--price-in and --price-out go together"),
        (("--max-cost", "1"), "--max-cost needs --price-in and --price-out"),
        (("--openai-base-url", "localhost:8000"), "write http://HOST:PORT/v1"),
        (("--source", "taroo"), "taroo"),
    ],
)
def test_options_that_do_not_fit(cli, tmp_path, more, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row("a")) + "\n")
    server = ("--openai-base-url", "http://127.0.0.1:1/v1", "--model", "m")
    done = cli("data", "caption", str(path), "--out", str(tmp_path / "out.jsonl"), *server, *more)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_no_file_named(cli, tmp_path):
    done = cli("data", "caption", "--out", str(tmp_path / "o.jsonl"), "--openai-base-url", "http://127.0.0.1:1/v1", "--model", "m")
    assert (done.code, "name the annotation file" in done.err) == (2, True)


@pytest.mark.parametrize("act", [status(401, f"bad key {KEY}"), status(404, "no such model")])
def test_wrong_key_and_wrong_model_are_one_line_and_exit_2(cli, monkeypatch, tmp_path, act):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    path = rows_file(tmp_path, THREE)
    with serving(act=act) as stub:
        done = cli(*command(path, stub.url))
    assert (done.code, len(stub.requests)) == (2, 1)
    assert done.err.splitlines()[-1].startswith("vtgrl: error: http://127.0.0.1")
    assert "Traceback" not in done.err
    assert KEY not in done.err + done.out


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    path = rows_file(tmp_path, THREE)
    gate = threading.Event()
    with serving(says(GOOD), says(GOOD), waits_for(gate)) as stub:
        with started(command(path, stub.url)) as process:
            until(lambda: len(stub.requests) == 3)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        gate.set()
        journal = tmp_path / "captioned.journal.jsonl"
        assert len(lines(journal)) == 2
        assert not (tmp_path / "captioned.jsonl").exists()
        with started(command(path, stub.url, "--json")) as process:
            out, err = process.communicate(timeout=120)
        assert (process.returncode, json.loads(out)["done_before"]) == (0, 2)
    assert stub.asked() == [4.0, 5.0, 6.0, 6.0]
    assert [len(line["captions"]) for line in lines(tmp_path / "captioned.jsonl")] == [2, 2, 2]
    assert {request.headers["authorization"] for request in stub.requests} == {f"Bearer {KEY}"}
    assert KEY not in out + err + journal.read_text()


def test_ctrl_c_is_130_at_once_and_keeps_the_journal(tmp_path):
    path = rows_file(tmp_path, THREE)
    gate = threading.Event()
    with serving(says(GOOD), waits_for(gate)) as stub:
        with started(command(path, stub.url)) as process:
            until(lambda: len(stub.requests) == 2)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=25)  # the server keeps its answer for 30 s
        gate.set()
    assert (process.returncode, out) == (130, "")
    assert "interrupted; 1 of 3 clips are in" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert len(lines(tmp_path / "captioned.journal.jsonl")) == 1
