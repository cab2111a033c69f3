"""TaRO, standalone evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.registry import register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class TaroConfig(ParserConfig):
    """Inclusive thresholds, best match among the true windows, 0/0 is 0."""


@register("parser", "taro", config=TaroConfig, paper="arXiv:2606.09248")
def taro(text: str, *, duration: float | None, query: str, config: TaroConfig) -> Parsed:
    """The last two unsigned numbers anywhere in the text, thinking included, put in order; no clamp."""
    numbers = _NUMBER.findall(text)
    if len(numbers) < 2:
        return Parsed()
    start, end = float(numbers[-2]), float(numbers[-1])
    return Parsed(((end, start),)) if start > end else Parsed(((start, end),))
