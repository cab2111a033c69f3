"""The output head on the rows that predict an answer token, against on every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from vtgrl.bench.measure.kit import Kit, TinyConfig, answers, tiny_kit
from vtgrl.bench.measure.scoring import differences, packed_way, single_way, times_less, work_and_time
from vtgrl.bench.measure.work import module_flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.types import PackedGroup


@dataclass(frozen=True)
class HeadskipConfig(TinyConfig):
    """One sequence: a text prompt and its answer."""

    prompt: int = opt(1024, "tokens of the prompt", ge=1)
    answer: int = opt(64, "tokens of the answer", ge=1)
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "headskip", config=HeadskipConfig)
def headskip(*, config: HeadskipConfig) -> BenchResult:
    """Prompt rows never go through the head: its FLOPs, forward and backward, against logits of every token."""
    with tiny_kit("text", config) as kit:
        group = PackedGroup(kit.prompt("Describe it.", tokens=config.prompt), answers([config.answer]))
        details = _measure(kit, group, repeats=config.repeats)
    return BenchResult(
        bench="headskip",
        ratio=details["head_flops"]["baseline"] / details["head_flops"]["ours"],
        exactness=max(details["difference"].values()),
        unit="FLOPs of the head, forward and backward (ours makes its logits again in backward)",
        baseline="plain Hugging Face forward and backward of the same sequence, logits of every token",
        details=details,
    )


def _measure(kit: Kit, group: PackedGroup, *, repeats: int) -> dict[str, Any]:
    policy, hf = kit.policy(), kit.hf()
    ours, baseline = packed_way(policy, [(group,)]), single_way(hf, [group], full_logits=True)
    (ours_flops,) = module_flops(ours.run, policy.hf.lm_head, root=policy)
    (baseline_flops,) = module_flops(baseline.run, hf.lm_head, root=hf)
    measured = work_and_time({"ours": ours, "baseline": baseline}, repeats=repeats)
    return {
        "head_rows": {"ours": _rows(ours.run, policy.hf.lm_head), "baseline": _rows(baseline.run, hf.lm_head)},
        "head_flops": {"ours": ours_flops, "baseline": baseline_flops},
        "vocabulary": hf.lm_head.out_features,
        "difference": differences(ours, baseline),
        "whole_pass_flops_ratio": times_less(measured["flops"])["baseline"],
        "whole_pass_time_ratio": times_less(measured["seconds"])["baseline"],
        **measured,
    }


def _rows(work: Callable[[], object], head: nn.Module) -> int:
    """Hidden states that go into the head."""
    found = [0]

    def count(module: nn.Module, args: tuple[Any, ...]) -> None:
        found[0] += args[0].numel() // args[0].shape[-1]

    handle = head.register_forward_pre_hook(count)
    try:
        work()
    finally:
        handle.remove()
    return found[0]
