"""A group's clip through the vision tower once, against once for every answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, answers, tiny_kit
from vtgrl.bench.measure.scoring import differences, packed_way, single_way
from vtgrl.bench.measure.work import calls, module_flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.types import PackedGroup


@dataclass(frozen=True)
class VisionGroupConfig(TinyConfig):
    """One group that shows one clip."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    answers: int = opt(8, "answers of the group", ge=1)
    answer: int = opt(16, "tokens of an answer", ge=1)
    frames: int = opt(60, "frames of the clip; two make one temporal slice", ge=2)
    side: int = opt(4, "tokens of a slice along each side", ge=1)


@register("bench", "vision-group", config=VisionGroupConfig)
def vision_group(*, config: VisionGroupConfig) -> BenchResult:
    """One tower call a group against one an answer: FLOPs of the tower, forward and backward."""
    with tiny_kit(config.family, config) as kit:
        clip = kit.medium(0, frames=config.frames, side=config.side)
        group = PackedGroup(kit.prompt("When does it happen?", [clip]), answers([config.answer] * config.answers))
        details = _measure(kit, group)
    return BenchResult(
        bench="vision-group",
        ratio=details["tower_flops"]["baseline"] / details["tower_flops"]["ours"],
        exactness=details["embedding_difference"],
        unit="FLOPs of the vision tower, forward and backward",
        baseline="plain Hugging Face forward and backward, one answer at a time, each with its clip",
        details=details,
    )


def _measure(kit: Kit, group: PackedGroup) -> dict[str, Any]:
    policy, hf = kit.policy(), kit.hf()
    ours, baseline = packed_way(policy, [(group,)]), single_way(hf, [group], full_logits=False)
    (ours_flops,) = module_flops(ours.run, policy.hf.model.visual, root=policy)
    (baseline_flops,) = module_flops(baseline.run, hf.model.visual, root=hf)
    (once,), repeated = _embeddings(ours.run, policy.hf.model.visual), _embeddings(baseline.run, hf.model.visual)
    return {
        "tower_flops": {"ours": ours_flops, "baseline": baseline_flops},
        "tower_calls": {"ours": 1, "baseline": len(repeated)},
        "tower_calls_with_a_reference_pass_and_a_frozen_tower": _calls_of_two_passes(kit, group),
        "vision_tokens": once.shape[0],
        "embedding_difference": max((once - again).abs().max().item() for again in repeated),
        "difference": differences(ours, baseline),
    }


def _embeddings(work: Callable[[], object], tower: nn.Module) -> list[torch.Tensor]:
    """Merged vision tokens of every tower call."""
    found: list[torch.Tensor] = []
    handle = tower.register_forward_hook(lambda module, args, out: found.append(out.pooler_output.detach()))
    try:
        work()
    finally:
        handle.remove()
    return found


def _calls_of_two_passes(kit: Kit, group: PackedGroup) -> dict[str, int]:
    """The training pass finds the embeddings that the reference pass of the same step has made."""
    policy, hf = kit.policy(frozen=True), kit.hf()
    ways = {"ours": packed_way(policy, [(group,)]), "baseline": single_way(hf, [group], full_logits=False)}
    return {name: sum(calls(way.run, way.hf.model.visual)[0] for _ in range(2)) for name, way in ways.items()}
