"""A run that was killed goes on as if nothing had happened: same rows, same draws, same losses (bit for bit)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.kit import grpo_recipe
from vtgrl.core.errors import ConfigError
from vtgrl.core.recipe import dump_recipe, load_recipe
from vtgrl.train.grpo import run_grpo

REWARD = f"reward=[{Path(__file__).parent / 'rewards.py'}:token_parity]"
SETTINGS = (REWARD, "train.steps=5", "train.batch=3", "train.save_every=1", "train.keep_last=9", "log.samples=99", "zero.stage=2")


@pytest.fixture(scope="module")
def recipe(tiny_dir: Callable[[str], Path], world_dir: Path) -> Any:
    return grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, *SETTINGS)


@pytest.fixture(scope="module")
def unbroken(recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("unbroken") / "run"
    run_grpo(recipe, run_dir=run_dir)
    return run_dir


def numbers(run_dir: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def drawn(run_dir: Path) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    return [(r["step"], r["id"], [c["token_ids"] for c in r["completions"]]) for r in rows]


@pytest.mark.parametrize("step", [1, 3])
def test_resume_equals_the_unbroken_run(recipe: Any, unbroken: Path, tmp_path: Path, step: int) -> None:
    """As after a kill: the logs hold later steps (and half a line), a half-written checkpoint lies around."""
    run_dir = tmp_path / "run"
    shutil.copytree(unbroken, run_dir, ignore=shutil.ignore_patterns("model", "summary.json"))
    for later in range(step + 1, 6):
        shutil.rmtree(run_dir / "ckpt" / f"step_{later:06d}")
    (run_dir / "ckpt" / f".tmp_step_{step + 1:06d}").mkdir()
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    run_grpo(recipe, run_dir=run_dir, resume="auto")
    assert numbers(run_dir) == numbers(unbroken)
    assert drawn(run_dir) == drawn(unbroken)


def test_a_used_folder_is_not_overwritten(recipe: Any, unbroken: Path) -> None:
    with pytest.raises(ConfigError, match="--resume auto"):
        run_grpo(recipe, run_dir=unbroken)


def test_resume_from_something_else_is_one_clear_line(recipe: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no state\.json"):
        run_grpo(recipe, run_dir=tmp_path / "run", resume=str(tmp_path))


@pytest.mark.timeout(240)
def test_ctrl_c_writes_a_checkpoint_and_exits_130(recipe: Any, unbroken: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe))
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "vtgrl", "train", "grpo", "--recipe", str(tmp_path / "recipe.yaml"), "--run-dir", str(run_dir)]
    proc = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (run_dir / "metrics.jsonl").exists() and proc.poll() is None:
        time.sleep(0.1)
    proc.send_signal(signal.SIGINT)
    _, stderr = proc.communicate(timeout=200)
    assert proc.returncode == 130, stderr
    done = len(numbers(run_dir))
    assert (run_dir / "ckpt" / f"step_{done:06d}" / "state.json").is_file()
    assert done < 5 or "stopped after" not in stderr
    run_grpo(recipe, run_dir=run_dir, resume="auto")
    for ours, theirs in zip(numbers(run_dir), numbers(unbroken), strict=True):  # another process may add up in another order
        assert (ours["step"], ours["rows"]) == (theirs["step"], theirs["rows"])
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.02)


def test_a_finished_run_can_be_made_longer(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """Its model folder is renewed; started again without more steps it just says so."""

    def run(steps: int) -> Any:
        recipe = grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, REWARD, "train.batch=2", f"train.steps={steps}")
        return run_grpo(recipe, run_dir=tmp_path, resume="auto")

    run(1)
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert run(2)["steps"] == 2
    after = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert before != after
    summary = run(2)
    assert summary["metrics"]["epoch"] == numbers(tmp_path)[-1]["epoch"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == after


def test_going_on_from_an_earlier_checkpoint_leaves_the_later_ones_out(recipe: Any, unbroken: Path, tmp_path: Path) -> None:
    """The final model and `--resume auto` are of the branch that was trained last."""
    shutil.copytree(unbroken, tmp_path / "run")
    ckpt = tmp_path / "run" / "ckpt"
    run_grpo(replace(recipe, train=replace(recipe.train, steps=3)), run_dir=tmp_path / "run", resume=str(ckpt / "step_000002"))
    assert sorted(p.name for p in ckpt.glob("step_*")) == ["step_000001", "step_000002", "step_000003"]
    assert (ckpt / "aside_step_000005").is_dir()
    from vtgrl.merge.zero3 import gather_state
    from vtgrl.model.load import load_plain

    three, model = gather_state(ckpt / "step_000003" / "ds"), load_plain(tmp_path / "run" / "model").state_dict()
    assert all(torch.equal(three[name], model[name]) for name in model)


@pytest.mark.parametrize(
    ("damage", "overrides", "message"),
    [
        (None, ("model.freeze=[vision,embed]",), "does not load .*model.* or zero.stage are not those"),
        (None, ("zero.stage=0",), "written with zero.stage=2 and the recipe says 0"),
        ("state.json", (), r"state\.json: cannot be read"),
        ("rng_rank_0.pt", (), "damaged: then --resume with an earlier step_N"),
        ("ds", (), "does not load"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_one_line(
    recipe: Any, unbroken: Path, tmp_path: Path, damage: str | None, overrides: tuple[str, ...], message: str
) -> None:
    """Never a start from the first weights instead, which is what DeepSpeed makes of missing shards."""
    path = Path(shutil.copytree(unbroken / "ckpt" / "step_000002", tmp_path / "step_000002"))
    if damage == "ds":
        shutil.rmtree(path / damage)
    elif damage:
        (path / damage).write_text("junk")
    changed = load_recipe(type(recipe), file=unbroken / "resolved.yaml", overrides=[*overrides])
    with pytest.raises(ConfigError, match=message):
        run_grpo(changed, run_dir=tmp_path / "run", resume=str(path))
