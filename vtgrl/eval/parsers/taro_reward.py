"""TaRO, the overlap part of its reward."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig, last_answer
from vtgrl.eval.types import Parsed

_SPAN = re.compile(r"(?<!\d)(\d+(?:\.\d*)?)s (?:to|and) (\d+(?:\.\d*)?)s", re.IGNORECASE)


@dataclass(frozen=True)
class TaroRewardConfig(ParserConfig):
    """True windows clamped to the clip; a start after the end stays as it is."""

    clamp_gt: bool = opt(True, "clamps the true windows to [0, duration] before scoring")


@register("parser", "taro_reward", config=TaroRewardConfig, paper="arXiv:2606.09248")
def taro_reward(text: str, *, duration: float | None, query: str, config: TaroRewardConfig) -> Parsed:
    """The last "Xs to Ys" (or "and") of the last answer block, an s behind both numbers."""
    block = last_answer(text)
    found = _SPAN.findall(block) if block is not None else []
    return Parsed(((float(found[-1][0]), float(found[-1][1])),)) if found else Parsed()
