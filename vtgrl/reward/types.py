"""What a reward sees and returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from vtgrl.core.registry import opt
from vtgrl.core.types import Completion, Sample


@dataclass(frozen=True)
class RewardConfig:
    """Base of every reward's config."""

    weight: float = opt(1.0, "multiplies the reward")


@dataclass(frozen=True, slots=True)
class RewardRow:
    """One answer. `duration`: seconds of the decoded clip (0 for text). `group`: id of its prompt in this step."""

    sample: Sample
    completion: Completion
    group: str
    duration: float


@dataclass(frozen=True)
class RewardOutput:
    """values: one a row; None when the reward does not apply or failed (counted, never guessed). metrics: for the log.

    A reward is `@register("reward", NAME, config=...) def f(rows: Sequence[RewardRow], *, config) -> RewardOutput`.
    """

    values: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
