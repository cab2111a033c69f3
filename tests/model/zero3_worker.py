"""One rank of a real ZeRO-3 run over gloo: `python zero3_worker.py SPEC.json OUT.pt` with RANK, WORLD_SIZE, ... set.

SPEC: {"cases": [{"name", "family", "folder", "frozen", "checkpointing", "teacher", "rows": [[kind of each rank] of each pass]}]}.
OUT (rank 0): per case the full gradients after backward on the last pass, and what `exactness_check` found.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import safe_get_full_grad
from policy_kit import Kit, group, weighted

from vtgrl.model.guard import exactness_check
from vtgrl.model.types import PackedGroup, PackedRow, PolicyOutput, Statistics

FROZEN = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
DEEPSPEED = FROZEN | {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}


def make_row(kit: Kit, kind: str) -> PackedRow:
    """text | video | other (another clip) | both (two clips) | empty."""
    if kind == "empty":
        return ()
    if kind == "text":
        return (PackedGroup(kit.prompt("What is two plus two?"), group(kit, (4, 1, 3), seed=3).answers),)
    seed = {"video": 1, "other": 4, "both": 2}[kind]
    return (group(kit, (3, 5, 1), seed=seed, media=2 if kind == "both" else 1),)


def make_policy(kit: Kit, case: dict[str, Any]) -> Any:
    policy = kit.policy(frozen=case["frozen"]).train()
    if case.get("checkpointing"):
        policy.hf.gradient_checkpointing_enable()
    return policy


def make_teacher(case: dict[str, Any]) -> Any:
    return Kit(Path(case["teacher"]), case["family"]).policy().eval().requires_grad_(False)


def distilled(student: Any, teacher: Any, row: PackedRow) -> PolicyOutput:
    """Student's values on the row, its divergence from the teacher and its three likeliest ids among them."""
    with torch.no_grad():
        other = teacher(row, temperature=1.2, statistics=Statistics(distribution=True)).distribution
    return student(row, entropy=True, statistics=Statistics(top_k=3, against=other, beta=0.3))


def loss_of(out: PolicyOutput) -> torch.Tensor:
    """Of all values; of the empty row the log-probs alone."""
    if not len(out.logp_R):
        return out.logp_R.sum()
    loss = weighted(out.logp_R) + weighted(out.entropy_R, seed=6)
    return loss if out.divergence_R is None else loss + weighted(out.divergence_R, seed=7) + out.top_logp_Rk.square().mean()


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    kit = Kit(Path(case["folder"]), case["family"])
    policy = make_policy(kit, case)
    engine, *_ = deepspeed.initialize(model=policy, model_parameters=[p for p in policy.parameters() if p.requires_grad], config=DEEPSPEED)
    rows = [make_row(kit, kinds[dist.get_rank()]) for kinds in case["rows"]]
    for row in rows[:-1]:
        with torch.no_grad():
            engine(row)
    found = exactness_check(engine.module, (rows[-1] or make_row(kit, "text"))[0])
    if "teacher" in case:
        teacher, *_ = deepspeed.initialize(model=make_teacher(case), config=FROZEN)
        out = distilled(engine, teacher, rows[-1])
    else:
        out = engine(rows[-1], entropy=True)
    engine.backward(loss_of(out))
    trained = [(n, p) for n, p in policy.named_parameters() if p.requires_grad]
    grads = {n: safe_get_full_grad(p).clone() for n, p in trained}
    engine.destroy()
    return {"grads": grads, "exactness": found}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles one for minutes
    deepspeed.init_distributed(dist_backend="gloo")
    results = {case["name"]: run_case(case) for case in json.loads(Path(sys.argv[1]).read_text())["cases"]}
    if dist.get_rank() == 0:
        torch.save(results, sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
