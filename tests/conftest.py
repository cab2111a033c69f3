"""Parts that many tests share: tiny checkpoints, generated clips, the read-only test material beside the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WORLD_CLIPS, WORLD_SEED = 24, 0


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`tiny_dir(family)`: folder of a tiny random checkpoint, built once a session. Do not write into it."""
    from vtgrl.model.tiny import build_tiny

    root = tmp_path_factory.mktemp("tiny")

    def get(family: str) -> Path:
        folder = root / family
        return folder if folder.exists() else build_tiny(folder, family=family)

    return get


@pytest.fixture(scope="session")
def world_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with world.jsonl and videos/*.mp4: 24 generated clips, seed 0. Do not write into it."""
    from vtgrl.data.world.make import make_world

    folder = tmp_path_factory.mktemp("world")
    make_world(folder, n=WORLD_CLIPS, seed=WORLD_SEED)
    return folder


@pytest.fixture(scope="session")
def taught_dir(tmp_path_factory: pytest.TempPathFactory, world_dir: Path) -> Path:
    """Folder of a tiny model that has seen the clips of `world_dir` for a few seconds: its IoU on them ranges from 0 to 1."""
    from tests.train.kit import sft_recipe
    from vtgrl.model.tiny import build_tiny
    from vtgrl.train.sft import run_sft

    root = tmp_path_factory.mktemp("taught")
    model = build_tiny(root / "tiny", family="qwen2_5_vl", gain=4.4)
    keys = ("train.steps=24", "train.batch=12", "optim.lr=3e-3", "model.freeze=[]", "optim.warmup_steps=5")
    run_sft(sft_recipe(model, world_dir, *keys), run_dir=root / "sft")
    return root / "sft" / "model"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The test material beside the repository; tests that need it are skipped without it."""
    folder = Path(__file__).resolve().parents[1].parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no test material at {folder}")
    return folder
