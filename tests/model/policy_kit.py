"""What tests of the packed forward share with the benches, and answers scored one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vtgrl.bench.measure.kit import FAMILIES, VLMS, Kit, answers, gradients, group, relative, weighted
from vtgrl.model.guard import score_alone
from vtgrl.model.policy import Policy
from vtgrl.model.types import PackedGroup

__all__ = ["FAMILIES", "VLMS", "Kit", "alone", "answers", "gradients", "group", "relative", "weighted"]


def alone(policy: Policy, row: Sequence[PackedGroup]) -> torch.Tensor:
    """[R] by the model's own forward, one answer at a time."""
    return torch.cat([score_alone(policy, g.prompt, a) for g in row for a in g.answers])
