"""The command line of the evaluation: one JSON document, exit codes, no torch for scoring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.eval.kit import write_jsonl
from vtgrl.cli.evaluate import app

TRUTH = [{"qid": k, "vid": f"v{k}", "query": "q", "duration": 30.0, "relevant_windows": [[10, 20]]} for k in range(3)]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    predictions = [{"qid": k, "output_text": "<answer>10s to 20s</answer>"} for k in range(2)]
    truth, given = write_jsonl(tmp_path / "t.jsonl", TRUTH), write_jsonl(tmp_path / "p.jsonl", predictions)
    return ["vtg", "-b", "jsonl", "-a", str(truth), "-p", str(given)]


def test_json_is_exactly_one_document(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["n"], document["missing"], document["metrics"]["mIoU"]) == (3, 1, pytest.approx(2 / 3))


def test_tables(files: list[str]) -> None:
    one = CliRunner().invoke(app, files)
    assert "66.67" in one.stdout
    assert "1 without output" in one.stdout
    every = CliRunner().invoke(app, [*files, "--parser", "all"])
    assert "unitime" in every.stdout
    assert every.exit_code == 0, every.output


def test_strict_exits_1_and_says_why(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--strict"])
    assert result.exit_code == 1
    assert "1 missing" in result.stderr


def test_options_of_a_model_run_are_refused(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--limit", "2", "--max-frames", "8", "--seed", "3"])
    assert result.exit_code != 0
    assert "--limit, --max-frames: only for a run with --model" in str(result.exception)


def test_a_model_run_refuses_what_needs_a_finished_file(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files[:5], "--model", "m", "--bootstrap", "50"])
    assert result.exit_code != 0
    assert "--predictions OUT/predictions.jsonl" in str(result.exception)


def test_every_parser_has_its_intervals(files: list[str]) -> None:
    result = CliRunner().invoke(app, [*files, "--parser", "all", "--bootstrap", "50", "--json"])
    parsers = json.loads(result.stdout)["parsers"]
    assert all(len(document["confidence_intervals"]["mIoU"]) == 2 for document in parsers.values())


def test_nan_is_null(tmp_path: Path) -> None:
    truth = write_jsonl(tmp_path / "t.jsonl", [{**TRUTH[0], "relevant_windows": [[5, 5]]}])
    given = write_jsonl(tmp_path / "p.jsonl", [{"qid": 0, "output_text": "5 to 5"}])
    result = CliRunner().invoke(app, ["vtg", "-b", "jsonl", "-a", str(truth), "-p", str(given), "--parser", "time_r1", "--json"])
    assert json.loads(result.stdout)["metrics"]["mIoU"] is None


def test_compare_and_lint(files: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert CliRunner().invoke(app, [*files, "--out", out]).exit_code == 0
    compared = CliRunner().invoke(app, ["compare", out, out, "--json"])
    assert json.loads(compared.stdout)["ties"] == 3
    linted = CliRunner().invoke(app, ["lint", "jsonl", files[4], "--json"])
    assert json.loads(linted.stdout)["counts"] == {}
    assert CliRunner().invoke(app, ["lint", "jsonl", files[4], "--strict"]).exit_code == 0


def test_scoring_needs_no_torch(files: list[str]) -> None:
    code = (
        "import sys; from vtgrl.cli.evaluate import app\n"
        f"try: app({[*files, '--parser', 'all', '--json']!r})\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'transformers', 'vllm', 'decord', 'av'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
