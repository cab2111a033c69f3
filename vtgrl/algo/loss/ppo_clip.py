"""PPO's clipped surrogate per step (arXiv:1707.06347), with clip-higher (DAPO, arXiv:2503.14476) and dual clip (arXiv:1912.09729).

With rho = pi / pi_old:  L = -min(rho A, clip(rho, 1 - low, 1 + high) A); for A < 0 also L <= -c A (dual clip).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vtgrl.algo.ratio import clip_metrics, log_ratio, masked
from vtgrl.algo.types import LossInputs, LossOutput
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import opt, register


@dataclass(frozen=True)
class PpoClipConfig:
    """Settings of the clipped surrogate."""

    clip_low: float = opt(0.2, "the ratio is cut below 1 - clip_low where the advantage is negative", ge=0)
    clip_high: float = opt(0.2, "the ratio is cut above 1 + clip_high where the advantage is positive (DAPO: 0.28)", ge=0)
    dual_clip: float = opt(0.0, "c > 1: a negative advantage costs at most c times itself (TaRO: 3); 0: off", ge=0)

    def __post_init__(self) -> None:
        if 0 < self.dual_clip <= 1:
            raise ConfigError(f"dual_clip is {self.dual_clip}: set it above 1 (TaRO: 3), or to 0 for off")


@register("loss", "ppo_clip", config=PpoClipConfig, paper="arXiv:1707.06347")
def ppo_clip(inputs: LossInputs, *, config: PpoClipConfig) -> LossOutput:
    """Clipped policy-gradient loss per token, with clip-higher and dual clip."""
    ratio_NT = log_ratio(inputs).exp()
    adv_NT, mask_NT = inputs.adv_NT.detach(), inputs.mask_NT
    low, high = 1 - config.clip_low, 1 + config.clip_high
    clipped_NT = torch.where(adv_NT > 0, ratio_NT.clamp(max=high), ratio_NT.clamp(min=low))
    metrics_NT = clip_metrics(inputs, ratio_NT, low=config.clip_low, high=config.clip_high)
    if config.dual_clip:
        metrics_NT["dual_clip"] = masked((adv_NT < 0) & (ratio_NT > config.dual_clip), mask_NT)
        clipped_NT = torch.where(adv_NT < 0, clipped_NT.clamp(max=config.dual_clip), clipped_NT)
    return LossOutput(torch.where(mask_NT, -clipped_NT * adv_NT, 0.0), metrics_NT)
