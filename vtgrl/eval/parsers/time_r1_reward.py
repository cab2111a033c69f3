"""Time-R1, the overlap part of its reward."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig, last_answer
from vtgrl.eval.types import Parsed, Policy, ThresholdOp

_SPAN = re.compile(r"(?<!\d)(\d+(?:\.\d*)?) (?:to|and) (\d+(?:\.\d*)?)", re.IGNORECASE)


@dataclass(frozen=True)
class TimeR1RewardConfig(ParserConfig):
    """On 0/0 the original fails, or hands on the IoU of the answer before: here the row is marked and counts as 0."""

    threshold_op: ThresholdOp = opt("gt", "R1@m counts IoU >= m (ge) or > m (gt)")
    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("crash", "what the original does on 0/0")


@register("parser", "time_r1_reward", config=TimeR1RewardConfig, paper="arXiv:2503.13377")
def time_r1_reward(text: str, *, duration: float | None, query: str, config: TimeR1RewardConfig) -> Parsed:
    """The last "X to Y" (or "and", any case) of the last answer block, no unit between."""
    block = last_answer(text)
    found = _SPAN.findall(block) if block is not None else []
    return Parsed(((float(found[-1][0]), float(found[-1][1])),)) if found else Parsed()
