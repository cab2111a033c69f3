"""A group's prompt once, against once for every answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, answers, tiny_kit
from vtgrl.bench.measure.peer import pairs
from vtgrl.bench.measure.scoring import differences, packed_way, padded_way, single_way, times_less, work_and_time
from vtgrl.bench.measure.work import module_flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.types import PackedGroup


@dataclass(frozen=True)
class PrefixConfig(TinyConfig):
    """One group: a prompt with a clip, and answers of one length."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    prompt: int = opt(1024, "tokens of the prompt, those of the clip included", ge=1)
    answer: int = opt(64, "tokens of an answer", ge=1)
    answers: int = opt(8, "answers of the group", ge=1)
    frames: int = opt(60, "frames of the clip; two make one temporal slice", ge=2)
    side: int = opt(5, "tokens of a slice along each side", ge=1)
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "prefix", config=PrefixConfig)
def prefix(*, config: PrefixConfig) -> BenchResult:
    """One packed row `[prompt ; answers]` against the prompt again with every answer: FLOPs of forward and backward."""
    with tiny_kit(config.family, config) as kit:
        details = _measure(kit, PackedGroup(*_group(kit, config)), repeats=config.repeats)
    return BenchResult(
        bench="prefix",
        ratio=details["flops_ratio"]["one_by_one"],
        exactness=max(details["difference"].values()),
        unit="FLOPs, forward and backward",
        baseline="plain Hugging Face forward and backward of prompt + answer, one answer at a time, logits of every token",
        details=details,
    )


def _group(kit: Kit, config: PrefixConfig) -> tuple[Any, Any]:
    clip = kit.medium(0, frames=config.frames, side=config.side)
    prompt = kit.prompt("When does it happen?", [clip], tokens=config.prompt)
    return prompt, answers([config.answer] * config.answers)


def _measure(kit: Kit, group: PackedGroup, *, repeats: int) -> dict[str, Any]:
    policy, hf, batch = kit.policy(), kit.hf(), pairs((group,))
    ours, baseline = packed_way(policy, [(group,)]), single_way(hf, [group], full_logits=True)
    ways = {
        "ours": ours,
        "one_by_one": baseline,
        "one_by_one_answer_logits": single_way(hf, [group], full_logits=False),
        "batch_answer_logits": padded_way(hf, [batch], full_logits=False),
    }
    difference = differences(ours, baseline)
    measured = work_and_time(ways, repeats=repeats)
    parts = {
        "ours": module_flops(ours.run, policy.hf.model.visual, policy.hf.lm_head, root=policy),
        "one_by_one": module_flops(baseline.run, hf.model.visual, hf.lm_head, root=hf),
    }
    return {
        "tokens": {"ours": group.tokens, "one_by_one": sum(len(p.input_ids) + len(a) for p, a in batch)},
        "difference": difference,
        "flops_ratio": times_less(measured["flops"]),
        "time_ratio": times_less(measured["seconds"]),
        **measured,
        "tower_flops": {name: tower for name, (tower, _) in parts.items()},
        "head_flops": {name: head for name, (_, head) in parts.items()},
    }
