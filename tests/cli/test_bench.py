"""`vtgrl bench`."""

import json

import pytest

from vtgrl.bench.types import BenchResult
from vtgrl.cli.bench import _print

SMALL = ("hidden=32", "layers=1", "prompt=60", "answer=4", "repeats=1")


def test_json_is_one_document(cli):
    done = cli("bench", "headskip", *SMALL, "--json")
    document = json.loads(done.out)
    assert done.code == 0
    assert list(document) == ["bench", "ratio", "exactness", "unit", "baseline", "details"]
    assert document["ratio"] == 12.0


def test_the_table_has_the_ratio_and_the_exactness_beside_it(cli):
    done = cli("bench", "headskip", *SMALL)
    (line,) = [line for line in done.out.splitlines() if "headskip" in line]
    cells = [cell.strip() for cell in line.split("│")]
    assert cells[1:3] == ["headskip", "12.00x"]
    assert 0 < float(cells[3]) < 1e-5
    assert "head_rows.baseline" in done.out


def test_brackets_of_a_text_are_printed(capsys):
    _print(BenchResult("x", 2.0, 0.0, "bytes", "a row [prompt] an answer", {"sizes": {"a": 1234567, "b": 0.25}, "ok": True}))
    out = capsys.readouterr().out
    assert "[prompt]" in out
    assert [line.split()[1::2] for line in out.splitlines() if "sizes" in line or "ok" in line] == [
        ["sizes.a", "1,234,567"],
        ["sizes.b", "0.25"],
        ["ok", "True"],
    ]


def test_without_a_name_the_benches_are_listed(cli):
    done = cli("bench")
    assert {"prefix", "headskip", "cli"} <= {line.split()[0] for line in done.out.splitlines()}
    assert done.out == cli("ls", "bench").out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["prefx"], "unknown bench 'prefx'; did you mean 'prefix'?"),
        (["headskip", "promt=3"], "unknown key 'promt'; did you mean 'prompt'?"),
        (["headskip", "prompt=0"], "prompt = 0 is outside its range (>= 1)"),
        (["headskip", "hidden=40", "repeats=1"], "use a multiple of 32"),
        (["prefix", "prompt=10"], "a prompt of 10 tokens is too short"),
    ],
)
def test_a_wrong_name_or_key_exits_2_and_says_the_right_one(cli, args, says):
    done = cli("bench", *args)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""
