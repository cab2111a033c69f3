"""What goes wrong in a run is counted and named, and costs as little as possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train import rewards
from tests.train.kit import grpo_recipe, sft_recipe
from vtgrl.core.errors import ConfigError, DataError, RunError
from vtgrl.train.ckpt import Checkpoints, TrainState
from vtgrl.train.grpo import run_grpo
from vtgrl.train.sft import run_sft
from vtgrl.train.world import World

FILE = Path(rewards.__file__)


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def make(tiny_dir: Callable[[str], Path], world_dir: Path) -> Callable[..., Any]:
    def get(*overrides: str) -> Any:
        return grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, f"reward=[{FILE}:token_parity]", "train.steps=3", "train.batch=2", *overrides)

    return get


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_nan_loss_skips_the_step(make: Callable[..., Any], tmp_path: Path, stage: int) -> None:
    """Step 2 has a NaN loss: no update, counted, its answers kept; step 3 trains again."""
    recipe = make(f"algo.loss={FILE}:nan_once", f"zero.stage={stage}", "train.save_every=1", "train.keep_last=9")
    summary = run_grpo(recipe, run_dir=tmp_path)
    rows = rows_of(tmp_path)
    assert [row["skipped"] for row in rows] == [0.0, 1.0, 1.0]
    assert summary["skipped_steps"] == 1
    assert rows[1]["grad_norm"] is None
    assert rows[2]["grad_norm"] > 0
    from vtgrl.merge.zero3 import gather_state

    one, two, three = (gather_state(tmp_path / "ckpt" / f"step_{s:06d}" / "ds") for s in (1, 2, 3))
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert any(not torch.equal(two[k], three[k]) for k in two)
    dumped = [json.loads(line) for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert {row["step"] for row in dumped} == {2}
    assert len(dumped) == 2


def test_a_run_that_only_skips_stops(make: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="2 steps in a row"):
        run_grpo(make("optim.lr=1e-3", "train.max_skipped=2", f"algo.loss={FILE}:always_nan"), run_dir=tmp_path)


def test_nan_rewards_leave_the_other_rows_alone(make: Callable[..., Any], tmp_path: Path) -> None:
    recipe = make(f"reward=[{FILE}:broken_for_some]", "rollout.n=6", "log.samples=0")
    run_grpo(recipe, run_dir=tmp_path)
    dumped = [json.loads(line) for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert dumped
    assert all(None in row["total"] for row in dumped), "only the groups that have an answer without a reward"
    assert not (tmp_path / "samples.jsonl").exists()
    rows = rows_of(tmp_path)
    assert sum(row["reward/missing"] for row in rows) > 0
    assert all(0 < row["reward/total"] < 1 and row["grad_norm"] > 0 for row in rows)


def test_a_step_without_any_reward_is_skipped(make: Callable[..., Any], tmp_path: Path) -> None:
    """No reward at all: no update (an entropy bonus alone must not train), counted, its answers kept."""
    recipe = make(f"reward=[{FILE}:always_broken]", "algo.entropy_coef=0.1", "train.max_skipped=2")
    with pytest.raises(RunError, match="2 steps in a row made no update; no answer had a reward"):
        run_grpo(recipe, run_dir=tmp_path)
    assert [row["skipped"] for row in rows_of(tmp_path)] == [1.0, 2.0]
    assert (tmp_path / "skipped.jsonl").is_file()


def test_a_broken_video_is_left_out_and_named(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    lines = (world_dir / "world.jsonl").read_text().splitlines()[:4]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row["video"]["path"] = str(world_dir / row["video"]["path"])
    (tmp_path / "broken.mp4").write_text("no video")
    rows[1]["video"]["path"] = str(tmp_path / "broken.mp4")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    recipe = sft_recipe(tiny_dir("qwen2_5_vl"), world_dir, f"data.path={tmp_path / 'rows.jsonl'}", "train.batch=4", "train.epochs=2")
    summary = run_sft(recipe, run_dir=tmp_path / "run")
    assert list(summary["left_out"]) == [rows[1]["id"]]
    assert "broken.mp4" in summary["left_out"][rows[1]["id"]]
    assert [row["rows"] for row in rows_of(tmp_path / "run")] == [3.0, 3.0]


def test_no_usable_row_is_an_error(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty\.jsonl"):
        run_sft(sft_recipe(tiny_dir("text"), world_dir, f"data.path={tmp_path / 'empty.jsonl'}"), run_dir=tmp_path / "run")


def test_group_baseline_needs_a_group(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.n"):
        make("rollout.n=1")


def test_masked_truncated_answers_train_nothing(make: Callable[..., Any], tmp_path: Path) -> None:
    """Exactly the tokens of answers that ended by themselves are trained, in every step."""
    run_grpo(make("algo.mask_truncated=true", "log.samples=99", "rollout.n=8", "rollout.sampling.max_tokens=60"), run_dir=tmp_path)
    ended = [0, 0, 0]
    for line in (tmp_path / "samples.jsonl").read_text().splitlines():
        row = json.loads(line)
        ended[row["step"] - 1] += sum(len(c["token_ids"]) for c in row["completions"] if c["finish"] == "stop")
    assert [row["trained_tokens"] for row in rows_of(tmp_path)] == ended
    assert any(ended)
    assert all(row["answer/finished"] < 1 for row in rows_of(tmp_path))


@pytest.mark.parametrize("overrides", [(), ("model.lora.r=4",)], ids=["second-copy", "adapters-off"])
@pytest.mark.parametrize("where", ["loss", "reward"])
def test_kl_starts_at_zero_and_grows(make: Callable[..., Any], tmp_path: Path, where: str, overrides: tuple[str, ...]) -> None:
    recipe = make("algo.kl.coef=0.1", f"algo.kl.where={where}", "optim.lr=3e-3", *overrides)
    run_grpo(recipe, run_dir=tmp_path)
    kl = [row["kl"] for row in rows_of(tmp_path)]
    assert kl[0] == pytest.approx(0.0, abs=1e-6)
    assert kl[2] > 1e-5


class _NoEngine:
    """Stands for an engine whose disk is full: every write fails."""

    def save(self, folder: Path, *, tag: str) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=2, world=World(0, 1, torch.device("cpu")))
    (tmp_path / "step_000001").mkdir()
    with pytest.raises(RunError, match="No space left"):
        checkpoints.save(_NoEngine(), TrainState(2, 1), model_files=lambda folder: None)  # type: ignore[arg-type]
    assert checkpoints.whole() == [tmp_path / "step_000001"]


def test_best_and_last_checkpoints_are_kept(make: Callable[..., Any], world_dir: Path, tmp_path: Path) -> None:
    val = f"data.val_path={world_dir / 'val.jsonl'}"
    recipe = make(val, "train.val_every=1", "train.save_every=1", "train.keep_last=1", "train.best_metric=val/n", "train.steps=4")
    run_grpo(recipe, run_dir=tmp_path)
    assert sorted(p.name for p in (tmp_path / "ckpt").iterdir()) == ["best.json", "step_000001", "step_000004"]
    assert json.loads((tmp_path / "ckpt" / "best.json").read_text()) == {"checkpoint": "step_000001", "value": 3.0}


def test_nothing_usable_is_an_error_that_says_why(make: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"none of the 3 steps made an update; \d rows were left out, first: .*max_prompt_tokens=10"):
        run_grpo(make("data.max_prompt_tokens=10"), run_dir=tmp_path)


def test_a_skipped_step_dumps_every_row(make: Callable[..., Any], tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """Also those that samples.jsonl has no room for, and in SFT."""
    recipe = make(f"algo.loss={FILE}:always_nan", "train.max_skipped=1", "log.samples=0")
    with pytest.raises(RunError, match="not finite"):
        run_grpo(recipe, run_dir=tmp_path / "grpo")
    assert len((tmp_path / "grpo" / "skipped.jsonl").read_text().splitlines()) == 2
    recipe = sft_recipe(tiny_dir("qwen2_5_vl"), world_dir, "optim.lr=1e30", "train.batch=3", "train.steps=2", "train.max_skipped=1")
    with pytest.raises(RunError, match="not finite"):
        run_sft(recipe, run_dir=tmp_path / "sft")
    dumped = [json.loads(line) for line in (tmp_path / "sft" / "skipped.jsonl").read_text().splitlines()]
    assert len(dumped) == 3
    assert all(row["step"] == 2 and "answer" in row and row["query"] for row in dumped)


def test_a_wrong_best_metric_is_found_before_the_model_is_loaded(make: Callable[..., Any], world_dir: Path, tmp_path: Path) -> None:
    keys = ("train.val_every=1", f"data.val_path={world_dir / 'val.jsonl'}", "model.path=nowhere")
    with pytest.raises(ConfigError, match=r"train.best_metric: no metric 'miou'; there are val/miou, "):
        run_grpo(make(*keys, "train.best_metric=miou"), run_dir=tmp_path)


def test_what_was_left_out_is_still_known_after_a_resume(make: Callable[..., Any], world_dir: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (world_dir / "world.jsonl").read_text().splitlines()[:3]]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({**row, "video": {"path": f"{world_dir}/{row['video']['path']}"}}) + "\n" for row in rows)
    )
    lost = tmp_path / "lost.jsonl"
    broken = {**rows[0], "id": "broken", "video": {"path": "absent.mp4"}}
    lost.write_text((tmp_path / "rows.jsonl").read_text() + json.dumps(broken) + "\n")
    keys = ("train.batch=4", "train.save_every=1")
    summary = run_grpo(make(f"data.path={lost}", "train.steps=1", *keys), run_dir=tmp_path / "run")
    assert list(summary["left_out"]) == ["broken"]
    again = run_grpo(make(f"data.path={tmp_path / 'rows.jsonl'}", "train.steps=2", *keys), run_dir=tmp_path / "run", resume="auto")
    assert again["left_out"] == summary["left_out"]
