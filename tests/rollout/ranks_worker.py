"""One rank of a real ZeRO-3 run with rollouts: `python ranks_worker.py SPEC.json OUT_PREFIX` with RANK, WORLD_SIZE, ... set.

SPEC: {"folder", "world" (or null), "engine", "prompts": [indices of each rank], "lora", "eos"}.
OUT_PREFIX.RANK.pt: answers before and after one optimizer step, parity of each with the sharded trainer, process group state.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch
import torch.distributed as dist
from rollout_kit import SAMPLING, Kit, ids, load_kit, prefer

from vtgrl.core.schema import LoraConfig
from vtgrl.model.types import PackedGroup
from vtgrl.rollout.parity import compare

N = 4
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}


def rows(kit: Kit, chosen: list[int], answers: Any, passes: int) -> list[Any]:
    """One packed row a group; empty ones so that all ranks make `passes` forward calls."""
    made: list[Any] = [(PackedGroup(kit.prompts[i], tuple(c.token_ids for c in g)),) for i, g in zip(chosen, answers, strict=True)]
    return made + [()] * (passes - len(made))


def parity(engine: Any, made: list[Any], answers: Any) -> float:
    with torch.no_grad():
        outputs = [engine(row).logp_R for row in made]
    scored = [piece for out, group in zip(outputs, answers, strict=False) for piece in out.split([len(c.token_ids) for c in group])]
    return compare([c for group in answers for c in group], scored)["rollout/logp_diff_max"]


def run(spec: dict[str, Any]) -> dict[str, Any]:
    rank, size = dist.get_rank(), dist.get_world_size()
    kit = load_kit(Path(spec["folder"]), Path(spec["world"]) if spec["world"] else None, lora=LoraConfig(r=4) if spec["lora"] else None)
    if spec["eos"]:
        prefer(kit.policy, min(kit.builder.eos_ids), by=0.3)
    trained = [p for p in kit.policy.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=kit.policy, model_parameters=trained, config=DEEPSPEED)
    assert all(p.numel() == 0 for p in kit.policy.hf.parameters())
    settings = {"kv_cache_gb": 0.2, "max_num_seqs": 32} if spec["engine"] == "vllm_colocate" else {"bucket_mb": 1}
    sampler = kit.engine(spec["engine"], rank=rank, world_size=size, **settings)
    chosen = spec["prompts"][rank]
    prompts, passes = [kit.prompts[i] for i in chosen], max(map(len, spec["prompts"]))
    sampling = replace(SAMPLING, max_tokens=spec["max_tokens"][rank])
    result: dict[str, Any] = {"parity": [], "ids": [], "versions": []}
    for step in range(2):
        sampler.publish(kit.policy, version=step)
        answers = sampler.generate(prompts, n=N, sampling=sampling, seed=step, version=step)
        made = rows(kit, chosen, answers, passes)
        result["ids"].append(ids(answers))
        result["versions"] += [c.policy_version for g in answers for c in g]
        result["parity"].append(parity(engine, made, answers))
        for row in made:
            engine.backward(-engine(row).logp_R.sum())
        engine.step()
    sampler.close()
    kit.builder.close()
    dist.barrier()  # the trainer's group is still there
    return result


def main() -> None:
    dist.init_process_group("gloo")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles one for minutes
    deepspeed.init_distributed(dist_backend="gloo")
    result = run(json.loads(Path(sys.argv[1]).read_text()))
    torch.save(result, f"{sys.argv[2]}.{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
