"""No curriculum: every answer is the policy's own from its first token."""

from __future__ import annotations

from vtgrl.algo.curriculum.types import CurriculumInputs, CurriculumOutput, Prefix
from vtgrl.core.registry import NoConfig, register


@register("curriculum", "none")
def none(inputs: CurriculumInputs, *, config: NoConfig) -> CurriculumOutput:
    """Free answers only."""
    return CurriculumOutput(((Prefix(),) * inputs.members,) * len(inputs.openings), 0.0)
