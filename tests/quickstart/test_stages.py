"""The stages: real commands, disjoint data, a diary that lets an interrupted run go on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from vtgrl.core.errors import ConfigError, EnvironmentMissing, Interrupted, RunError
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe, SftRecipe
from vtgrl.quickstart import run as module
from vtgrl.quickstart.run import DIARY, Diary, run_stages
from vtgrl.quickstart.stages import Budget, Stage, pick_engine, plan


def commands(seed: int = 0, engine: str = "hf") -> dict[str, list[str]]:
    return {s.key: shlex.split(s.command) for s in plan(Path("q"), seed=seed, engine=engine, budget=Budget())}


@pytest.mark.parametrize(("kind", "recipe"), [("sft", SftRecipe), ("grpo", GrpoRecipe)])
@pytest.mark.parametrize("engine", ["hf", "vllm_colocate"])
def test_train_commands_resolve_against_the_shipped_recipes(kind: str, recipe: type, engine: str) -> None:
    words = commands(engine=engine)[kind]
    assert words[:5] == ["vtgrl", "train", kind, "--recipe", f"tiny/world_{kind}"]
    resolved = load_recipe(recipe, file=words[4], overrides=words[5 : words.index("--run-dir")])
    assert resolved.data.path == "q/world/train/world.jsonl"
    assert resolved.data.val_path == "q/world/val/world.jsonl"
    if kind == "grpo":
        assert resolved.rollout.engine.name == engine
        assert resolved.model.path == "q/sft/model"


def test_no_two_seeds_share_clips() -> None:
    seeds = [words[words.index("--seed") + 1] for seed in range(5) for key, words in commands(seed).items() if key.startswith("world")]
    assert len(set(seeds)) == 10


def test_both_models_are_evaluated_the_same_way() -> None:
    before, after = commands()["eval-sft"], commands()["eval-grpo"]
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [("q/sft/model", "q/grpo/model"), ("q/eval/sft", "q/eval/grpo")]


def test_engine_by_name_needs_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert pick_engine("auto") == "hf"
    with pytest.raises(EnvironmentMissing, match="make vllm-cpu"):
        pick_engine("vllm_colocate")


def make_stages(out: Path, *, fail: str = "") -> list[Stage]:
    """Three stages of real processes that append to a log; the one named `fail` exits 1."""
    stages = []
    for key in "abc":
        folder = out / key
        code = f"import pathlib as p; f=p.Path({str(folder)!r}); f.mkdir(); (f/'made').touch()"
        code += f"; print({key!r}, file=open({str(out / 'log')!r}, 'a'))"
        code += "; raise SystemExit(1)" if key == fail else ""
        stages.append(Stage(key, key, ("-c", code), folder / "made", folder, program="python"))
    return stages


def ran(out: Path) -> str:
    text = (out / "log").read_text().replace("\n", "") if (out / "log").exists() else ""
    (out / "log").unlink(missing_ok=True)
    return text


def test_done_stages_are_not_repeated_and_later_ones_follow_an_earlier_one(tmp_path: Path) -> None:
    run_stages(make_stages(tmp_path), Diary(tmp_path / DIARY, {}))
    assert ran(tmp_path) == "abc"
    run_stages(make_stages(tmp_path), Diary.open(tmp_path, fresh=False))
    assert ran(tmp_path) == ""
    (tmp_path / "b" / "made").unlink()
    run_stages(make_stages(tmp_path), Diary.open(tmp_path, fresh=False))
    assert ran(tmp_path) == "bc"
    run_stages(make_stages(tmp_path), Diary.open(tmp_path, fresh=True))
    assert ran(tmp_path) == "abc"


def test_a_failed_stage_stops_the_rest_and_is_run_again(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="'b' failed"):
        run_stages(make_stages(tmp_path, fail="b"), Diary(tmp_path / DIARY, {}))
    assert ran(tmp_path) == "ab"
    run_stages(make_stages(tmp_path), Diary.open(tmp_path, fresh=False))
    assert ran(tmp_path) == "bc"


def test_only_an_interrupted_stage_of_the_same_command_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    stage = Stage("grpo", "GRPO", ("train", "grpo"), tmp_path / "grpo" / "summary.json", tmp_path / "grpo", resumes=True)

    def stop(argv: list[str]) -> int:
        calls.append(argv[4:])
        stage.folder.mkdir(exist_ok=True)
        (stage.folder / "ckpt").touch()
        return 130

    monkeypatch.setattr(module, "_call", stop)
    for _ in range(2):
        with pytest.raises(Interrupted, match="goes on from there"):
            run_stages([stage], Diary.open(tmp_path, fresh=False))
    assert calls == [["train", "grpo"], ["train", "grpo", "--resume", "auto"]]
    assert (stage.folder / "ckpt").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match="not a quickstart folder"):
        Diary.open(tmp_path, fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_another_version_starts_over(tmp_path: Path) -> None:
    (tmp_path / DIARY).write_text(json.dumps({"version": "0.0.0", "stages": {"a": {"command": "x", "seconds": 1.0}}}))
    assert Diary.open(tmp_path, fresh=False).done == {}
