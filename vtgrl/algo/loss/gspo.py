"""GSPO: one importance ratio for the whole answer (arXiv:2507.18071).

s_i = exp(1/|y_i| sum_t log(pi / pi_old)_t);  L_i = -min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i). The loss is written on every step of
the row, so `aggregate: seq_mean` gives the paper's objective; the gradient reaches all steps through the mean in s_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vtgrl.algo.ratio import clip_metrics, log_ratio
from vtgrl.algo.types import LossInputs, LossOutput
from vtgrl.core.registry import opt, register


@dataclass(frozen=True)
class GspoConfig:
    """Settings of GSPO. Sequence ratios stay near 1, hence the small range."""

    clip_low: float = opt(3e-4, "the ratio is cut below 1 - clip_low where the advantage is negative", ge=0)
    clip_high: float = opt(4e-4, "the ratio is cut above 1 + clip_high where the advantage is positive", ge=0)


@register("loss", "gspo", config=GspoConfig, paper="arXiv:2507.18071")
def gspo(inputs: LossInputs, *, config: GspoConfig) -> LossOutput:
    """Clipped policy-gradient loss with the geometric mean of the answer's token ratios."""
    mask_NT, adv_NT = inputs.mask_NT, inputs.adv_NT.detach()
    length_N1 = mask_NT.sum(1, keepdim=True).clamp(min=1)
    ratio_NT = (log_ratio(inputs).sum(1, keepdim=True) / length_N1).exp().expand_as(adv_NT)
    clipped_NT = torch.where(adv_NT > 0, ratio_NT.clamp(max=1 + config.clip_high), ratio_NT.clamp(min=1 - config.clip_low))
    metrics_NT = clip_metrics(inputs, ratio_NT, low=config.clip_low, high=config.clip_high)
    return LossOutput(torch.where(mask_NT, -clipped_NT * adv_NT, 0.0), metrics_NT)
