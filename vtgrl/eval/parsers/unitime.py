"""UniTime, evaluation: set overlap without merging."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timechat import paired
from vtgrl.eval.types import Parsed, Policy, ThresholdOp

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class UniTimeConfig(ParserConfig):
    """Strict thresholds; repeated or overlapping windows push the IoU above 1."""

    threshold_op: ThresholdOp = opt("gt", "R1@m counts IoU >= m (ge) or > m (gt)")
    policy: Policy = opt("set", "several true windows: best match, the first one, or all as a set")
    iou: Literal["hull", "merged", "pairwise"] = opt("pairwise", "definition of the overlap, see vtgrl/eval/iou.py")


@register("parser", "unitime", config=UniTimeConfig, paper="arXiv:2506.18883")
def unitime(text: str, *, duration: float | None, query: str, config: UniTimeConfig) -> Parsed:
    """Every number of the text in order, in pairs; an odd last one is dropped."""
    return Parsed(tuple(paired([float(n) for n in _NUMBER.findall(text)])))
