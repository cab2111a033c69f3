"""A shuffled clip's dirty slices through the vision tower once, against the whole clip for every answer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from vtgrl.bench.measure.kit import Kit, tiny_kit
from vtgrl.bench.measure.shuffled import Granularity, ShuffledConfig, one_by_one, shuffled_group, slices, true_group
from vtgrl.bench.measure.work import module_flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import register


@register("bench", "vision-shuffle", config=ShuffledConfig)
def vision_shuffle(*, config: ShuffledConfig) -> BenchResult:
    """Answers scored once more under a shuffled clip: slices through the vision tower, which does not train."""
    with tiny_kit(config.family, config) as kit, torch.no_grad():
        details: dict[str, Any] = {unit: _measure(kit, config, granularity=unit) for unit in ("frame", "patch")}
    sent = details["frame"]["slices"]
    return BenchResult(
        bench="vision-shuffle",
        ratio=sent["baseline"] / sent["ours"],
        exactness=max(measured["embedding_difference"] for measured in details.values()),
        unit="temporal slices through the vision tower, single frames shuffled",
        baseline="plain Hugging Face forward, one answer at a time, each with the whole shuffled clip",
        details=details,
    )


def _measure(kit: Kit, config: ShuffledConfig, *, granularity: Granularity) -> dict[str, Any]:
    """The true clip's embeddings are there already: the update of the same step needs them anyway."""
    policy, hf = kit.policy(frozen=True), kit.hf()
    group = true_group(kit, config)
    changed, variant = shuffled_group(group, config, granularity=granularity)
    ours, baseline = partial(policy, (changed,)), partial(one_by_one, hf, changed)
    policy((group,))
    ours_flops = module_flops(ours, policy.hf.model.visual, root=policy)[0]
    baseline_flops = module_flops(baseline, hf.model.visual, root=hf)[0]
    sent = {"ours": slices(ours, policy.hf.model.visual), "baseline": slices(baseline, hf.model.visual)}
    clip = variant.grid_thw[0]
    both = {"ours": sent["ours"] + clip, "baseline": sent["baseline"] + config.answers * clip}
    return {
        "slices": sent,
        "slices_of_the_clip": clip,
        "slices_with_the_true_clip": {**both, "ratio": both["baseline"] / both["ours"]},
        "tower_flops": {"ours": ours_flops, "baseline": baseline_flops},
        "embedding_difference": _embedding_difference(policy, variant),
        "logp_difference": (ours().logp_R - baseline()).abs().max().item(),
    }


def _embedding_difference(policy: Any, variant: Any) -> float:
    """Assembled from the true clip's slices and the dirty ones, against the whole shuffled clip through the tower."""
    assembled, _ = policy.vision.run([variant])
    whole = policy.family.encode_vision(
        policy.hf, variant.pixel_values.to(policy.device), torch.tensor([variant.grid_thw], device=policy.device)
    )
    parts = zip((assembled.embeds_VD, *assembled.deepstack), (whole.embeds_VD, *whole.deepstack), strict=True)
    return max((a - b).abs().max().item() for a, b in parts)
