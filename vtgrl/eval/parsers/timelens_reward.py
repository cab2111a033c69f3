"""TimeLens, the overlap part of its reward."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timelens import time_pairs
from vtgrl.eval.types import Parsed, Policy

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class TimeLensRewardConfig(ParserConfig):
    """A window with start >= end scores 0."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    drop_empty: bool = opt(True, "a window with start >= end scores 0")


@register("parser", "timelens_reward", config=TimeLensRewardConfig, paper="arXiv:2512.14698")
def timelens_reward(text: str, *, duration: float | None, query: str, config: TimeLensRewardConfig) -> Parsed:
    """As `timelens`, on the first answer block, or on the whole text when there is none."""
    block = _ANSWER.search(text)
    return Parsed(tuple(time_pairs(block.group(1) if block else text)[:1]))
