"""Time-R1, evaluation. VideoChat-R1 reads answers by the same rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed, Policy, ThresholdOp

_SPAN = re.compile(r"(?<!\d)(\d+(?:\.\d*)?) (?:to|and) (\d+(?:\.\d*)?)")


@dataclass(frozen=True)
class TimeR1Config(ParserConfig):
    """Strict thresholds, one true window, 0/0 is NaN and makes the mean NaN."""

    threshold_op: ThresholdOp = opt("gt", "R1@m counts IoU >= m (ge) or > m (gt)")
    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("nan", "what the original does on 0/0")


@register("parser", "time_r1", config=TimeR1Config, paper="arXiv:2503.13377")
def time_r1(text: str, *, duration: float | None, query: str, config: TimeR1Config) -> Parsed:
    """The last "X to Y" (or "and") anywhere, thinking included: lower case, single spaces, no unit between; order kept."""
    return Parsed(last_plain_span(text))


def last_plain_span(text: str) -> tuple[tuple[float, float], ...]:
    """Windows of the last "X to Y" of a text, none when there is no such form."""
    found = _SPAN.findall(text)
    return ((float(found[-1][0]), float(found[-1][1])),) if found else ()
