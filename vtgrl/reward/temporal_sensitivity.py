"""Temporal-sensitivity reward (TaRO, arXiv 2606.09248): pay a right answer whose reasoning was read off the clip.

d of an answer: by how much its reasoning becomes less likely, a token, when the frames around the true boundaries are
shuffled. The trainer measures it (probe `boundary_shuffle`); the recipe's `probes` says how.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.probes import signal
from vtgrl.core.registry import opt, register
from vtgrl.reward.iou import Form, overlap
from vtgrl.reward.types import RewardConfig, RewardOutput, RewardRow

D = signal("boundary_shuffle")


@dataclass(frozen=True)
class TemporalSensitivityConfig(RewardConfig):
    """Settings of the temporal-sensitivity reward."""

    alpha: float = opt(0.3, "paid to an answer that is more sensitive than the threshold")
    tau: float = opt(0.7, "only answers with this IoU or more are paid", ge=0, le=1)
    threshold: Literal["group_mean", "leave_one_out", "constant"] = opt(
        "group_mean", "what d has to exceed: the mean d of the prompt's answers, that of its other answers, or `constant`"
    )
    constant: float = opt(0.0, "threshold of `constant`, log-prob a token")
    margin: float = opt(0.0, "d has to exceed the threshold by more than this; above 0, noise among equal answers pays nothing")
    form: Form = opt("vtgrl", "how the answer is read and its IoU taken: as the `form` of the `iou` reward")


@register("reward", "temporal_sensitivity", config=TemporalSensitivityConfig, paper="arXiv:2606.09248", needs=(D,))
def temporal_sensitivity(rows: Sequence[RewardRow], *, config: TemporalSensitivityConfig) -> RewardOutput:
    """`alpha` for a right answer whose reasoning depends on the order of frames more than the others' of its group.

    None where there is no d (no window, no think block, nothing to shuffle) or no true window; NaN where d or the IoU could
    not be computed. Rows are matched by group id.
    """
    limit = _thresholds(rows, config)
    above = [_above(row, limit[i], config.margin) for i, row in enumerate(rows)]
    values = tuple(_value(row, up, config) for row, up in zip(rows, above, strict=True))
    return RewardOutput(values, means={"above": [float(up) for up in above if up is not None]})


def _value(row: RewardRow, above: bool | None, config: TemporalSensitivityConfig) -> float | None:
    share = overlap(row, form=config.form)
    if D not in row.signals or share is None:
        return None
    if above is None or math.isnan(share):
        return math.nan
    return config.alpha if above and share >= config.tau else 0.0


def _above(row: RewardRow, limit: float | None, margin: float) -> bool | None:
    """None when the row has no d, or none that is a number."""
    d = row.signals.get(D, math.nan)
    if not math.isfinite(d):
        return None
    return limit is not None and d > limit + margin


def _thresholds(rows: Sequence[RewardRow], config: TemporalSensitivityConfig) -> list[float | None]:
    """One a row; None: there is no other answer to compare with."""
    if config.threshold == "constant":
        return [config.constant] * len(rows)
    members: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if math.isfinite(row.signals.get(D, math.nan)):
            members[row.group].append(i)
    out: list[float | None] = [None] * len(rows)
    for group in members.values():
        for i in group:
            others = [j for j in group if j != i] if config.threshold == "leave_one_out" else group
            out[i] = _mean([rows[j].signals[D] for j in others])
    return out


def _mean(values: Sequence[float]) -> float | None:
    """Rounded once, from the exact sum: equal values have exactly this mean, so none of them exceeds it."""
    return statistics.mean(values) if values else None
