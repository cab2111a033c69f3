"""Small recipes on generated clips, and ranks as subprocesses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe, SftRecipe

COMMON = (
    "model.dtype=fp32",
    "data.prompt=direct",
    "video.max_frames=8",
    "train.save_every=0",
    "zero.stage=0",
    "optim.lr=1e-3",
    "optim.weight_decay=0",
    "log.monitors=[]",
)
GRPO = ("rollout.engine=hf", "rollout.n=3", "rollout.sampling.max_tokens=12", "validation.max_tokens=12")


def sft_recipe(model: Path, world: Path, *overrides: str) -> SftRecipe:
    """SFT of a tiny model on the first clips of a world."""
    return load_recipe(SftRecipe, file=None, overrides=[*_paths(model, world), *COMMON, *overrides])


def grpo_recipe(model: Path, world: Path, *overrides: str) -> GrpoRecipe:
    """GRPO of a tiny model with the hf engine."""
    return load_recipe(GrpoRecipe, file=None, overrides=[*_paths(model, world), *COMMON, *GRPO, *overrides])


def _paths(model: Path, world: Path) -> list[str]:
    return [f"model.path={model}", f"data.path={world / 'world.jsonl'}"]


def run_ranks(script: Path, *args: Any, ranks: int, timeout: float = 240.0) -> list[str]:
    """Run `python script *args` on `ranks` gloo ranks; their outputs in rank order. Fails with the first bad rank's output."""
    from vtgrl.train.launch import free_port

    env = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    procs = [subprocess.Popen(command, env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}, **pipes) for r in range(ranks)]
    outputs = []
    try:
        for proc in procs:
            outputs.append(proc.communicate(timeout=timeout)[0])
    finally:
        for proc in procs:
            proc.kill()
    for rank, (proc, output) in enumerate(zip(procs, outputs, strict=True)):
        assert proc.returncode == 0, f"rank {rank} exited {proc.returncode}:\n{output[-4000:]}"
    return outputs
