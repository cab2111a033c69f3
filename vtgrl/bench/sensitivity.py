"""What the temporal-sensitivity reward adds to a GRPO step: one packed pass, against two passes an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from vtgrl.bench.measure.kit import Kit, tiny_kit
from vtgrl.bench.measure.scoring import packed_way
from vtgrl.bench.measure.shuffled import ShuffledConfig, one_by_one, shuffled_group, true_group
from vtgrl.bench.measure.work import flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.types import PackedGroup


@dataclass(frozen=True)
class SensitivityConfig(ShuffledConfig):
    """One group that shows a clip of 16 seconds."""

    frames: int = opt(32, "frames of the clip, two a second", ge=4)
    answer: int = opt(64, "tokens of an answer", ge=1)


@register("bench", "sensitivity", config=SensitivityConfig)
def sensitivity(*, config: SensitivityConfig) -> BenchResult:
    """FLOPs that the sensitivity reward adds to a step: a packed pass with the sampler's log-probs as baseline, or two passes an answer."""
    with tiny_kit(config.family, config) as kit:
        details = _measure(kit, config)
    return BenchResult(
        bench="sensitivity",
        ratio=details["extra_flops"]["one_by_one"] / details["extra_flops"]["frame"],
        exactness=details["d_difference"],
        unit="FLOPs that the reward adds to a step",
        baseline="plain Hugging Face forwards under the true and the shuffled clip, one answer at a time",
        details=details,
    )


def _measure(kit: Kit, config: SensitivityConfig) -> dict[str, Any]:
    policy, hf = kit.policy(frozen=True), kit.hf()
    group = true_group(kit, config)
    frame, patch = (shuffled_group(group, config, granularity=unit)[0] for unit in ("frame", "patch"))
    plain = flops(packed_way(policy, [(group,)]).run)  # generation is not counted: it would make every share smaller

    def ours(*row: PackedGroup) -> torch.Tensor:
        return torch.cat([policy((each,)).logp_R for each in row])

    def theirs(*row: PackedGroup) -> torch.Tensor:
        return torch.cat([one_by_one(hf, each) for each in row])

    with torch.no_grad():
        extra = {
            "frame": flops(lambda: ours(frame)),
            "patch": flops(lambda: ours(patch)),
            "frame_trainer_baseline": flops(lambda: ours(group, frame)),
            "one_by_one": flops(lambda: theirs(group, frame)),
        }
        d_ours, d_theirs = (_d(score(group, frame), config) for score in (ours, theirs))
    return {
        "plain_step_flops": plain,
        "extra_flops": extra,
        "extra_share_of_a_plain_step": {name: value / plain for name, value in extra.items()},
        "packed_tokens": group.tokens,
        "d_difference": (d_ours - d_theirs).abs().max().item(),
    }


def _d(logp_R: torch.Tensor, config: SensitivityConfig) -> torch.Tensor:
    """d [answers] over all tokens of each, from the log-probs under the true clip and then under the shuffled one."""
    true, changed = logp_R.view(2, config.answers, config.answer)
    return (true - changed).mean(1)
