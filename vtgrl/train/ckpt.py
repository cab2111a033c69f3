"""Checkpoints: written to a temporary folder and renamed, so that a `step_N` folder is always whole.

ckpt/step_000050/ds/...            DeepSpeed shards of every rank (weights, moments)
ckpt/step_000050/rng_rank_0.pt     random states
ckpt/step_000050/state.json        step, world size, best metric
ckpt/step_000050/hf/               config, tokenizer, processor, so that `vtgrl merge` needs nothing else
ckpt/best.json                     which one is best
"""

from __future__ import annotations

import json
import random
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.jsonl import atomic_write
from vtgrl.core.log import logger
from vtgrl.merge.zero3 import UNREADABLE
from vtgrl.train.engine_ds import DsEngine
from vtgrl.train.world import World

TAG = "ds"
_NAME = re.compile(r"step_(\d{6,})")


@dataclass(frozen=True)
class TrainState:
    """What a run must know to go on. `step`: optimizer-batch steps done. `lora_scale`: alpha / r (0 without adapters), for the
    merge. `skipped`: steps without an update so far. `zero_stage`: shards and moments are laid out for it (None: not recorded).
    `left_out`: why a sample could not be used so far, by id."""

    step: int
    world_size: int
    lora_scale: float = 0.0
    skipped: int = 0
    best: float | None = None
    best_step: int | None = None
    zero_stage: int | None = None
    left_out: dict[str, str] = field(default_factory=dict)


class Checkpoints:
    """The `ckpt` folder of one run."""

    def __init__(self, folder: Path, *, keep_last: int, world: World) -> None:
        self.folder = folder
        self.keep_last = keep_last
        self.world = world

    def save(self, engine: DsEngine, state: TrainState, *, model_files: Any) -> Path:
        """Write a checkpoint (collective). `model_files(folder)` writes config, tokenizer and processor.

        Raises:
            RunError: the disk is full or not writable; the last whole checkpoint is untouched.
        """
        final = self.at(state.step)
        tmp = self.folder / f".tmp_{final.name}"
        self._collective(lambda: self._prepare(tmp) if self.world.main else None)
        self._collective(lambda: self._write(engine, state, tmp, model_files))
        self._collective(lambda: self._publish(tmp, final, state) if self.world.main else None)
        return final

    def _collective(self, work: Any) -> None:
        """Run `work` on all ranks; if it fails on one, all raise, so that none waits for ever."""
        problem = None
        try:
            work()
        except (OSError, RuntimeError) as error:  # torch.save wraps a full disk in RuntimeError
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
        problems = [p for p in self.world.gather(problem) if p]
        if problems:
            raise RunError(f"cannot save a checkpoint in {self.folder} ({problems[0]}); free space and use --resume auto")

    @staticmethod
    def _prepare(tmp: Path) -> None:
        shutil.rmtree(tmp, ignore_errors=True)
        tmp.mkdir(parents=True)

    def _write(self, engine: DsEngine, state: TrainState, tmp: Path, model_files: Any) -> None:
        engine.save(tmp, tag=TAG)
        torch.save(_rng_state(), tmp / f"rng_rank_{self.world.rank}.pt")
        if self.world.main:
            atomic_write(tmp / "state.json", json.dumps(asdict(state), indent=1))
            model_files(tmp / "hf")

    def _publish(self, tmp: Path, final: Path, state: TrainState) -> None:
        shutil.rmtree(final, ignore_errors=True)
        tmp.rename(final)
        if state.best_step == state.step:
            atomic_write(self.folder / "best.json", json.dumps({"checkpoint": final.name, "value": state.best}))
        self._prune(state)

    def _prune(self, state: TrainState) -> None:
        kept = set(self.whole()[-self.keep_last :]) if self.keep_last else set()
        for path in self.whole():
            if path not in kept and step_of(path) not in (state.best_step, state.step):
                shutil.rmtree(path)

    def at(self, step: int) -> Path:
        """Folder of a step's checkpoint."""
        return self.folder / f"step_{step:06d}"

    def set_aside_after(self, step: int) -> None:
        """Rename checkpoints later than `step`, from where a run goes on: `--resume auto` must not take another branch's."""
        for path in self.whole():
            if step_of(path) > step:
                aside = path.with_name(f"aside_{path.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                logger.warning("%s is later than the checkpoint this run goes on from; it is now %s", path, aside.name)

    def whole(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted((p for p in self.folder.glob("step_*") if _NAME.fullmatch(p.name)), key=step_of)

    def find(self, resume: str) -> Path | None:
        """The checkpoint that `--resume auto` (newest, None when there is none) or `--resume PATH` means.

        Raises:
            ConfigError: the path is no checkpoint.
        """
        if resume == "auto":
            found = self.whole()
            return found[-1] if found else None
        path = Path(resume)
        if not (path / "state.json").is_file():
            raise ConfigError(f"--resume {resume}: no state.json in there; give a folder such as RUN/ckpt/step_000050, or auto")
        return path

    def load(self, engine: DsEngine, path: Path) -> TrainState:
        """Restore weights, moments and random states (collective).

        Raises:
            ConfigError: the checkpoint was written by another number of ranks or for other weights, or it is damaged.
        """
        state = read_state(path)
        if state.world_size != self.world.size:
            raise ConfigError(f"{path} was written by {state.world_size} ranks and this run has {self.world.size}; start as many")
        if state.zero_stage not in (None, engine.stage):
            raise ConfigError(f"{path} was written with zero.stage={state.zero_stage} and the recipe says {engine.stage}; set it as it was")
        try:
            engine.load(path, tag=TAG)
            _set_rng_state(torch.load(path / f"rng_rank_{self.world.rank}.pt", weights_only=False))
        except UNREADABLE as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
            raise ConfigError(
                f"{path} does not load ({why}); either model.* or zero.stage are not those of the run that wrote it, "
                "or it is damaged: then --resume with an earlier step_N"
            ) from error
        return state


def read_state(path: Path) -> TrainState:
    """What a checkpoint's state.json says.

    Raises:
        ConfigError: it is damaged.
    """
    try:
        return TrainState(**json.loads((path / "state.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path / 'state.json'}: cannot be read ({error}); take another checkpoint") from error


def step_of(path: Path) -> int:
    """Step number of a checkpoint folder."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"{path} is not a checkpoint folder (step_N)")
    return int(match.group(1))


def _rng_state() -> dict[str, Any]:
    state = {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_rng_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
