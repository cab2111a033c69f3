"""What every parser's config holds: how the project that it reproduces turns windows into a score.

A parser is `@register("parser", NAME, config=...) def f(text, *, duration, query, config) -> Parsed`, one file each.
`duration`: seconds of the clip, None when unknown. It reads ONE output; it never sees the ground truth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt
from vtgrl.eval.types import Policy, ThresholdOp


@dataclass(frozen=True)
class ParserConfig:
    """Scoring rules that belong to a parser unless the command line says otherwise."""

    threshold_op: ThresholdOp = opt("ge", "R1@m counts IoU >= m (ge) or > m (gt)")
    policy: Policy = opt("max", "several true windows: best match, the first one, or all as a set")
    iou: Literal["hull", "merged", "pairwise"] = opt("hull", "definition of the overlap, see vtgrl/eval/iou.py")
    zero_hull: Literal["zero", "nan", "crash"] = opt("zero", "what the original does on 0/0: 0, NaN, or an exception that drops the row")
    clamp_gt: bool = opt(False, "clamps the true windows to [0, duration] before scoring")
    drop_empty: bool = opt(False, "a window with start >= end scores 0")


_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def last_answer(text: str) -> str | None:
    """Content of the last complete answer block; None when there is none."""
    blocks = _ANSWER.findall(text)
    return blocks[-1] if blocks else None
