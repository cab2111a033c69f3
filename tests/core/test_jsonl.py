"""JSONL reading and atomic files."""

import errno
import json
import os
import subprocess
import sys

import pytest

from vtgrl.core.errors import DataError, RunError
from vtgrl.core.jsonl import append_line, atomic_write, read_jsonl, to_line


def test_rows_come_with_their_numbers(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": "\\u2028é"}\n')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (3, {"a": "\u2028é"})]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b'{"a": 1}\n{"a": \n', ":2: not JSON"), (b"[1]\n", ":1: expected a JSON object, got list"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_bad_row_is_named(tmp_path, content, says):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_jsonl(path))
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no\.jsonl: No such file"):
        list(read_jsonl(tmp_path / "no.jsonl"))


def test_numbers_that_are_not_finite_become_null():
    assert json.loads(to_line({"a": float("nan"), "b": [1.0, float("inf")], "c": {"d": -float("inf")}})) == {
        "a": None,
        "b": [1.0, None],
        "c": {"d": None},
    }


def test_an_atomic_write_replaces_and_keeps_usual_permissions(tmp_path):
    path = tmp_path / "new" / "a.txt"
    atomic_write(path, "one")
    atomic_write(path, b"two")
    assert path.read_text() == "two"
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_full_disk_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    atomic_write(path, "old")

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*a\.txt: No space left on device; free space") as caught:
        atomic_write(path, "new")
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["a.txt"]
    assert path.read_text() == "old"


LIMITED = """
import resource, sys
from pathlib import Path
from vtgrl.core.errors import RunError
from vtgrl.core.jsonl import append_line, atomic_write
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
append_line(path, "short\\n")
for write in (append_line, atomic_write):
    try:
        write(path, "x" * 100 + "\\n")
    except RunError as error:
        print(error)
append_line(path, "again\\n")
"""


def test_a_row_that_does_not_fit_is_taken_back_whole(tmp_path):
    """The operating system really stops the write half-way (file size limit)."""
    path = tmp_path / "a.jsonl"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.count("cannot write") == 2
    assert path.read_text() == "short\nagain\n"
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_appending_to_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(RunError, match="cannot write"):
        append_line(tmp_path / "no" / "a.jsonl", "x\n")
