"""The importance ratio pi(y) / pi_old(y), in the log domain and never NaN. Shape legend: N rows, T steps."""

from __future__ import annotations

import torch

from vtgrl.algo.types import LossInputs

LARGEST_LOG_RATIO = 20.0
"""|log ratio| is cut here: exp(20) = 4.9e8 keeps float32 sums finite. Beyond, the ratio has no gradient; every clip range is far inside."""


def log_ratio(inputs: LossInputs) -> torch.Tensor:
    """logp - old_logp on trained steps, 0 elsewhere (whatever padding holds), cut at LARGEST_LOG_RATIO; float32 or wider."""
    dtype = torch.promote_types(inputs.logp_NT.dtype, torch.float32)
    ratio_NT = inputs.logp_NT.to(dtype) - inputs.old_logp_NT.detach().to(dtype)
    return torch.where(inputs.mask_NT, ratio_NT, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def masked(values_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Detached values for the log, 0 outside the mask."""
    return torch.where(mask_NT, values_NT.detach().to(torch.float32), 0.0)


def clip_metrics(inputs: LossInputs, ratio_NT: torch.Tensor, *, low: float, high: float) -> dict[str, torch.Tensor]:
    """Where the clip took the gradient, the ratio, and the k3 estimate of KL(old || new)."""
    ratio_NT, adv_NT = ratio_NT.detach(), inputs.adv_NT
    return {
        "clip_low": masked((adv_NT < 0) & (ratio_NT < 1 - low), inputs.mask_NT),
        "clip_high": masked((adv_NT > 0) & (ratio_NT > 1 + high), inputs.mask_NT),
        "ratio": masked(ratio_NT, inputs.mask_NT),
        "approx_kl": masked(ratio_NT - 1 - ratio_NT.log(), inputs.mask_NT),
    }
