"""What a reward sees and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vtgrl.core.registry import opt
from vtgrl.core.types import Completion, Sample


@dataclass(frozen=True)
class RewardConfig:
    """Base of every reward's config."""

    weight: float = opt(1.0, "multiplies the reward")


@dataclass(frozen=True, slots=True)
class RewardRow:
    """One answer. `duration`: seconds of the decoded clip (0 for text). `group`: id of its prompt in this step.

    `signals`: what the trainer's extra passes found for this row, by name ("probe:boundary_shuffle"); a pass that does not
    apply to the row leaves nothing.
    """

    sample: Sample
    completion: Completion
    group: str
    duration: float
    signals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardOutput:
    """values: one a row; None when the reward does not apply to the row, NaN when it applies but could not be computed
    (counted, never guessed).

    For the log, over the rows of all ranks: `metrics` are counts and added up; `means` are numbers of single rows, of which
    the mean is taken.

    A reward is `@register("reward", NAME, config=...) def f(rows: Sequence[RewardRow], *, config) -> RewardOutput`.
    """

    values: tuple[float | None, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardTable:
    """All rewards of some rows.

    total: weighted sum of the rewards that apply, one a row; NaN when none applies or one of them failed: the row has no reward.
    per_reward: label -> unweighted values, NaN where absent or failed. metrics: counts for the log. means: (sum, how many)
    for the log. Both can be added up over ranks.
    """

    total: tuple[float, ...]
    per_reward: dict[str, tuple[float, ...]]
    metrics: dict[str, float] = field(default_factory=dict)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)
