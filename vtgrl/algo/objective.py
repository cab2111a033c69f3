"""Policy loss, KL to the reference and entropy -> one number to minimise, and sums for the log.

Shape legend: N rows of one forward pass, T steps.
"""

from __future__ import annotations

import torch

from vtgrl.algo.kl import KlKind, kl_NT
from vtgrl.algo.ratio import masked
from vtgrl.algo.types import LossInputs
from vtgrl.core.schema import AlgoConfig


def objective(inputs: LossInputs, *, algo: AlgoConfig, weight_N: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
    """These rows' share of the step's loss, and sums for the log.

    loss = sum_i weight_i sum_t w_it (policy_it + kl.coef KL_it - entropy_coef H_it), with `weight_N` from `aggregate.row_weights` over
    ALL rows of the optimizer step: shares of micro-batches and ranks add up to the loss of the step. w_it is 1, or `weight_NT`.

    sums: "tokens" (trained steps), "loss" (this share), and per-step quantities summed over trained steps: add them up over
    micro-batches and ranks, then divide by the added-up "tokens" for the mean. KL is reported whenever the reference was scored.
    """
    output = algo.loss(inputs)
    loss_NT = output.loss_NT
    metrics_NT = {"policy_loss": loss_NT, **output.metrics_NT}
    if inputs.ref_logp_NT is not None:
        metrics_NT["kl"] = kl = _reference_kl(inputs, inputs.ref_logp_NT, algo.kl.kind)
        if algo.kl.where == "loss":
            loss_NT = loss_NT + algo.kl.coef * kl
    if inputs.entropy_NT is not None:
        entropy_NT = torch.where(inputs.mask_NT, inputs.entropy_NT, 0.0)
        metrics_NT["entropy"] = entropy_NT
        loss_NT = loss_NT - algo.entropy_coef * entropy_NT
    assert inputs.ref_logp_NT is not None or not (algo.kl.coef and algo.kl.where == "loss"), "KL in the loss needs ref_logp_NT"
    assert inputs.entropy_NT is not None or not algo.entropy_coef, "the entropy bonus needs entropy_NT"
    if inputs.weight_NT is not None:
        loss_NT = loss_NT * inputs.weight_NT
    loss = (loss_NT * weight_N.to(loss_NT.dtype).unsqueeze(1)).sum()
    return loss, _sums(loss, metrics_NT, inputs.mask_NT)


def _reference_kl(inputs: LossInputs, ref_logp_NT: torch.Tensor, kind: KlKind) -> torch.Tensor:
    """KL estimate on trained steps, 0 elsewhere. Masked before it is computed: 0 x NaN in a gradient is NaN."""
    logp_NT = torch.where(inputs.mask_NT, inputs.logp_NT, 0.0)
    return kl_NT(logp_NT, torch.where(inputs.mask_NT, ref_logp_NT.detach(), 0.0), kind)


def _sums(loss: torch.Tensor, metrics_NT: dict[str, torch.Tensor], mask_NT: torch.Tensor) -> dict[str, float]:
    """Plain floats, through one transfer from the device."""
    sums = [masked(values_NT, mask_NT).sum(dtype=torch.float64) for values_NT in metrics_NT.values()]
    numbers = torch.stack([mask_NT.sum().double(), loss.detach().double(), *sums]).tolist()
    return dict(zip(("tokens", "loss", *metrics_NT), numbers, strict=True))
