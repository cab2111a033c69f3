"""Checkpoints of every ZeRO stage become the same Hugging Face folder; broken ones are refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.train.kit import sft_recipe
from vtgrl.core.errors import ConfigError
from vtgrl.merge.zero3 import best_of, gather_state, merge_adapters, merge_checkpoint
from vtgrl.model.load import load_plain
from vtgrl.model.tiny import build_tiny
from vtgrl.train.sft import run_sft

SETTINGS = ("train.steps=1", "train.batch=2", "optim.lr=1e-2", "optim.eps=1e-2", "train.save_every=1")


@pytest.fixture(scope="module")
def runs(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folder of a one-step SFT run with the given settings, made once."""
    made: dict[tuple[str, ...], Path] = {}

    def get(*overrides: str, model: Path | None = None) -> Path:
        key = (*overrides, str(model))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("runs") / "run"
            run_sft(sft_recipe(model or tiny_dir("qwen2_5_vl"), world_dir, *SETTINGS, *overrides), run_dir=made[key])
        return made[key]

    return get


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_every_stage_gives_the_weights_of_stage_0(runs: Callable[..., Path], stage: int) -> None:
    ours, theirs = weights(runs(f"zero.stage={stage}") / "model"), weights(runs("zero.stage=0") / "model")
    assert ours.keys() == theirs.keys()
    assert max(float((ours[k] - theirs[k]).abs().max()) for k in theirs) < 1e-5


def test_the_folder_is_whole_and_trained(runs: Callable[..., Path], tiny_dir: Callable[[str], Path]) -> None:
    """Config, processor and chat template are there; trained weights moved, frozen ones are the start model's, bit for bit."""
    folder = runs("zero.stage=3") / "model"
    start, end = weights(tiny_dir("qwen2_5_vl")), weights(folder)
    assert {"config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"} <= {p.name for p in folder.iterdir()}
    assert not torch.equal(start["lm_head.weight"], end["lm_head.weight"])
    tower = [k for k in start if "visual.blocks" in k]
    assert tower
    assert all(torch.equal(start[k], end[k]) for k in tower)
    assert all(t.numel() > 0 for t in end.values())


def test_bf16_runs_give_bf16_folders(runs: Callable[..., Path]) -> None:
    folder = runs("zero.stage=3", "model.dtype=bf16") / "model"
    assert {t.dtype for t in weights(folder).values()} == {torch.bfloat16}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.mark.parametrize("stage", [0, 3])
def test_tied_heads_stay_tied(runs: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory, stage: int) -> None:
    tied = build_tiny(tmp_path_factory.mktemp("tied") / "m", family="qwen2_5_vl", tie=True)
    model: Any = load_plain(runs(f"zero.stage={stage}", model=tied) / "model")
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_adapters_are_added_to_the_weights(runs: Callable[..., Path], tiny_dir: Callable[[str], Path]) -> None:
    """Adapted layers moved by exactly scale B A (public fault 39: 'merged' output equal to the base); nothing else moved."""
    run = runs("zero.stage=3", "model.lora.r=2", "model.lora.alpha=8", "model.lora.targets=[q_proj]")
    start, end = weights(tiny_dir("qwen2_5_vl")), weights(run / "model")
    moved = {k for k in start if not torch.equal(start[k], end[k])}
    assert moved == {k for k in start if k.endswith("q_proj.weight") and "visual" not in k}
    raw = gather_state(run / "ckpt" / "step_000001" / "ds")
    name = next(k for k in raw if "lora_A" in k)
    base = name.replace(".lora_A.default", ".base_layer")
    wanted = raw[base] + 4.0 * raw[name.replace("lora_A", "lora_B")] @ raw[name]
    merged, count = merge_adapters(raw, scale=4.0)
    assert count == len(moved)
    assert torch.equal(merged[base.replace(".base_layer", "")], wanted)


def test_a_missing_rank_file_is_refused(runs: Callable[..., Path], tmp_path: Path) -> None:
    ckpt = tmp_path / "step_000001"
    shutil.copytree(runs("zero.stage=3") / "ckpt" / "step_000001", ckpt)
    next((ckpt / "ds").glob("*model_states.pt")).unlink()
    with pytest.raises(ConfigError, match="cannot read the shards"):
        merge_checkpoint(ckpt, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_cut_file_is_refused(runs: Callable[..., Path], tmp_path: Path) -> None:
    ckpt = tmp_path / "step_000001"
    shutil.copytree(runs("zero.stage=3") / "ckpt" / "step_000001", ckpt)
    file = next((ckpt / "ds").glob("*optim_states.pt"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ConfigError, match="cannot read the shards"):
        merge_checkpoint(ckpt, out=tmp_path / "out")


@pytest.mark.parametrize(("name", "message"), [("state.json", "damaged"), ("ds/mp_rank_00_model_states.pt", "cannot read the shards")])
def test_junk_is_one_line(runs: Callable[..., Path], tmp_path: Path, name: str, message: str) -> None:
    ckpt = Path(shutil.copytree(runs("zero.stage=0") / "ckpt" / "step_000001", tmp_path / "step_000001"))
    (ckpt / name).write_text("junkjunkjunk")
    with pytest.raises(ConfigError, match=message):
        merge_checkpoint(ckpt, out=tmp_path / "out")


def test_other_folders_are_refused(runs: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no state\.json"):
        merge_checkpoint(tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="not empty"):
        merge_checkpoint(runs("zero.stage=3") / "ckpt" / "step_000001", out=runs("zero.stage=3") / "model")


def test_best_stands_for_the_checkpoint_that_validated_best(tmp_path: Path) -> None:
    ckpt = tmp_path / "ckpt"
    ckpt.mkdir()
    with pytest.raises(ConfigError, match=r"best\.json: not there; the run validated nothing"):
        best_of(ckpt / "best")
    (ckpt / "best.json").write_text('{"checkpoint": "step_000050", "value": 0.5}')
    assert best_of(ckpt / "best") == ckpt / "step_000050"
    assert best_of(ckpt / "step_000100") == ckpt / "step_000100"
