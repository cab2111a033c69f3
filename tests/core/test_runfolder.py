"""Run folders: what they hold, when they refuse, and one row a step after a resume (public fault 64)."""

import json
import logging
import subprocess
import sys

import pytest

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.runfolder import RunFolder


def test_a_new_run_holds_its_recipe_and_its_environment(tmp_path):
    folder = RunFolder.create(tmp_path / "runs" / "a", resolved_yaml="x: 1\n", resume=False)
    assert (folder.path / "resolved.yaml").read_text() == "x: 1\n"
    env = json.loads((folder.path / "env.json").read_text())
    assert {"argv", "python", "packages", "host", "cpus", "memory_bytes", "gpus", "git"} <= set(env)
    assert env["packages"]["pyyaml"]
    assert folder.ckpt_dir.is_dir()


def test_a_folder_with_something_in_it_is_refused_unless_resumed(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty; go on with --resume auto"):
        RunFolder.create(tmp_path, resolved_yaml="", resume=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt"]
    RunFolder.create(tmp_path, resolved_yaml="x: 1\n", resume=True)
    with pytest.raises(ConfigError, match="is a file"):
        RunFolder.create(tmp_path / "notes.txt", resolved_yaml="", resume=False)


def test_an_existing_empty_folder_is_taken(tmp_path):
    RunFolder.create(tmp_path, resolved_yaml="x: 1\n", resume=False)
    assert (tmp_path / "resolved.yaml").read_text() == "x: 1\n"


def test_resuming_with_another_recipe_is_told_and_keeps_the_old_one(tmp_path, caplog):
    RunFolder.create(tmp_path, resolved_yaml="x: 1\n", resume=False)
    logger = logging.getLogger("vtgrl")
    logger.addHandler(caplog.handler)
    try:
        RunFolder.create(tmp_path, resolved_yaml="x: 1\n", resume=True)
        assert not caplog.records
        RunFolder.create(tmp_path, resolved_yaml="x: 2\n", resume=True)
    finally:
        logger.removeHandler(caplog.handler)
    assert "another recipe" in caplog.text
    assert (tmp_path / "resolved.before.yaml").read_text() == "x: 1\n"
    assert (tmp_path / "resolved.yaml").read_text() == "x: 2\n"


def test_after_a_resume_there_is_one_row_a_step_and_the_later_counts(tmp_path):
    """Crash in step 6, resume from the checkpoint of step 3."""
    folder = RunFolder.create(tmp_path, resolved_yaml="", resume=False)
    for step in range(1, 6):
        folder.append_jsonl("metrics.jsonl", {"step": step, "loss": 1.0 * step, "text": "\u2028"})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "lo')
    folder = RunFolder.create(tmp_path, resolved_yaml="", resume=True)
    folder.drop_rows_from("metrics.jsonl", step=4)
    folder.drop_rows_from("samples.jsonl", step=4)
    for step in range(4, 8):
        folder.append_jsonl("metrics.jsonl", {"step": step, "loss": 10.0 * step})
    rows = [row for _, row in read_jsonl(tmp_path / "metrics.jsonl")]
    assert [(r["step"], r["loss"]) for r in rows] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0), (7, 70.0)]
    assert not (tmp_path / "samples.jsonl").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        RunFolder.create(tmp_path / "file" / "run", resolved_yaml="", resume=False)


def test_a_start_that_failed_leaves_a_folder_that_can_be_used_again(tmp_path):
    RunFolder.create(tmp_path, resolved_yaml="model: wrong", resume=False)
    folder = RunFolder.create(tmp_path, resolved_yaml="model: right", resume=False)
    folder.append_jsonl("metrics.jsonl", {"step": 1})
    with pytest.raises(ConfigError, match="is not empty"):
        RunFolder.create(tmp_path, resolved_yaml="", resume=False)
    (folder.path / "metrics.jsonl").unlink()
    (folder.ckpt_dir / "step_000001").mkdir()
    with pytest.raises(ConfigError, match="is not empty"):
        RunFolder.create(tmp_path, resolved_yaml="", resume=False)


def test_one_run_a_folder_at_a_time(tmp_path):
    """Two runs that write one folder would destroy each other's checkpoints; the lock ends with its process, also by SIGKILL."""
    code = (
        "import sys; from vtgrl.core.runfolder import RunFolder\n"
        "RunFolder.create(sys.argv[1], resolved_yaml='', resume=True); print('there', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "there\n"
            with pytest.raises(ConfigError, match="in use by another run"):
                RunFolder.create(tmp_path, resolved_yaml="", resume=True)
        finally:
            other.kill()
    RunFolder.create(tmp_path, resolved_yaml="", resume=True)
    RunFolder.create(tmp_path, resolved_yaml="", resume=True)
