"""The whole quickstart with a budget of seconds: every stage is the real command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vtgrl.quickstart import Budget, run_quickstart

BUDGET = Budget(train_clips=32, val_clips=8, sft_steps=3, grpo_steps=2, val_every=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quickstart_runs_every_stage_and_shows_what_came_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    result = run_quickstart(out=out, engine="hf", budget=BUDGET)

    documents = {kind: json.loads((out / "eval" / kind / "metrics.json").read_text()) for kind in ("sft", "grpo")}
    assert {d["n"] for d in documents.values()} == {8}
    assert result["gain"] == pytest.approx(documents["grpo"]["metrics"]["mIoU"] - documents["sft"]["metrics"]["mIoU"])
    for kind, steps in (("sft", 3), ("grpo", 2)):
        assert len((out / kind / "metrics.jsonl").read_text().splitlines()) == steps
        assert (out / kind / "model" / "model.safetensors").is_file()
    differences = [json.loads(line)["rollout/logp_diff_max"] for line in (out / "grpo" / "metrics.jsonl").read_text().splitlines()]
    assert max(differences) <= 1e-5

    page = (out / "report.html").read_text()
    assert page.count('<article class="card clip">') == 8
    assert page.count("data:image/jpeg;base64,") == 8 * 8
    assert page.count("<svg") == 4
    assert "mIoU" in capsys.readouterr().out

    made = {p: p.stat().st_mtime_ns for p in (out / "sft").rglob("*") if p.is_file()}
    again = run_quickstart(out=out, engine="hf", budget=BUDGET)
    assert again == result
    assert {p: p.stat().st_mtime_ns for p in made} == made, "a finished stage was run again"


@pytest.mark.timeout(120)
def test_ctrl_c_waits_for_the_stage_and_exits_130(tmp_path: Path) -> None:
    """The stage gets the signal too, ends in its own time, and the next start would go on from it."""
    stage = (
        "import pathlib, signal, sys, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "def stop(*_):\n    time.sleep(0.5); (here / 'saved').touch(); sys.exit(130)\n"
        "signal.signal(signal.SIGINT, stop); (here / 'began').touch(); time.sleep(60)\n"
    )
    script = (
        "import sys\nfrom pathlib import Path\nfrom vtgrl.core.errors import Interrupted\n"
        "from vtgrl.quickstart.run import Diary, run_stages\nfrom vtgrl.quickstart.stages import Stage\n"
        f"out = Path({str(tmp_path)!r})\n"
        f"stage = Stage('grpo', 'GRPO', ('-c', {stage!r}), out / 'x', out / 'folder', program='python', resumes=True)\n"
        "try:\n    run_stages([stage], Diary.open(out, fresh=False))\n"
        "except Interrupted as error:\n    sys.exit(error.exit_code)\n"
    )
    out = tmp_path / "quickstart.json"
    out.write_text(json.dumps({"version": "another", "stages": {}}))
    parent = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    while not (tmp_path / "began").exists():
        assert parent.poll() is None
        time.sleep(0.05)
    signal_group(parent)
    assert parent.wait(timeout=60) == 130
    assert (tmp_path / "saved").exists(), "the parent did not wait for the stage's checkpoint"
    assert json.loads(out.read_text())["stages"]["grpo"]["seconds"] is None


def signal_group(process: subprocess.Popen[bytes]) -> None:
    """What a terminal does on Ctrl-C: SIGINT to the process and its children."""
    os.killpg(process.pid, signal.SIGINT)
