"""Which steps of an answer exist. Shape legend: N rows, T steps, padded on the right."""

from __future__ import annotations

from collections.abc import Collection

import torch


def completion_mask(ids_NT: torch.Tensor, eos_ids: Collection[int]) -> torch.Tensor:
    """True up to and including the first end token of every row; all True without one. bool [N, T].

    Right also when the padding is the end token (trl PR#4970): what follows the first one is padding, the first one is trained.
    Example: eos 2, [5, 6, 2, 2, 2] -> three steps.
    """
    ends_NT = torch.isin(ids_NT, torch.tensor(sorted(eos_ids), dtype=ids_NT.dtype, device=ids_NT.device))
    ends_before_NT = ends_NT.int().cumsum(1) - ends_NT.int()
    return ends_before_NT == 0
