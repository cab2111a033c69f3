"""Rollouts inside real ZeRO-3 runs on two gloo ranks: nothing hangs, sampler and sharded trainer agree."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_kit import SAMPLING, Kit, ids, prefer

LIMIT_S = 400
"""A hang is killed after this; the runs take a tenth of it on an idle machine."""

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S + 60)]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def launch(out: Path, size: int, **spec: Any) -> list[dict[str, Any]]:
    """Run `size` ranks to the end -> what each found."""
    (out / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, str(Path(__file__).parent / "ranks_worker.py"), str(out / "spec.json"), str(out / "rank")]
    base = {**os.environ, "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            command, env={**base, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for r in range(size)
    ]
    try:
        logs = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, log in zip(ranks, logs, strict=True):
        assert rank.returncode == 0, log[-4000:]
    return [torch.load(f"{out}/rank.{r}.pt") for r in range(size)]


def test_a_rank_whose_answers_end_first_or_that_has_none_does_not_hang(
    make_kit: Callable[..., Kit], tiny_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    """Public fault 35: rank 0 decodes two prompts for up to 40 steps, rank 1 has one prompt that ends after 2."""
    found = launch(
        tmp_path, 2, folder=str(tiny_dir("text")), world=None, engine="hf", prompts=[[0, 1], [2]], max_tokens=[40, 2], lora=False, eos=True
    )
    kit = make_kit("text")
    prefer(kit.policy, min(kit.builder.eos_ids), by=0.3)
    alone = kit.engine("hf").generate(kit.prompts, n=4, sampling=replace(SAMPLING, max_tokens=40), seed=0, version=0)
    assert found[0]["ids"][0] == ids(alone)[:2]  # as one unsharded process draws them
    assert found[1]["ids"][0] == [[answer[:2] for answer in ids(alone)[2]]]
    lengths = [len(answer) for rank in found for group in rank["ids"][0] for answer in group]
    assert len(set(lengths)) > 2
    for rank in found:
        assert max(rank["parity"]) <= 1e-5
        assert rank["versions"] == sorted(rank["versions"])


def test_a_rank_without_prompts_takes_part_in_publishing_video_and_adapters(
    tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path
) -> None:
    found = launch(
        tmp_path,
        2,
        folder=str(tiny_dir("qwen3_vl")),
        world=str(world_dir),
        engine="hf",
        prompts=[[0, 1], []],
        max_tokens=[12, 12],
        lora=True,
        eos=False,
    )
    assert found[1]["ids"] == [[], []]
    assert max(found[0]["parity"]) <= 1e-5
    assert found[0]["ids"][0] != found[0]["ids"][1]


@needs_vllm
def test_vllm_beside_a_sharded_trainer_on_two_ranks(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    found = launch(
        tmp_path,
        2,
        folder=str(tiny_dir("qwen2_5_vl")),
        world=str(world_dir),
        engine="vllm_colocate",
        prompts=[[0, 1], [2]],
        max_tokens=[12, 8],
        lora=False,
        eos=False,
    )
    for rank in found:
        assert max(rank["parity"]) <= 1e-5
        assert all(len(set(group)) == 4 for step in rank["ids"] for group in step)  # members differ
    answers = [answer[:8] for rank in found for group in rank["ids"][0] for answer in group]
    assert len(set(answers)) == 12  # so do ranks
