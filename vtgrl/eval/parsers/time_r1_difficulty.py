"""Time-R1, the parser behind the `difficulty` of its training rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.registry import register
from vtgrl.eval.parsers.time_r1 import TimeR1Config, last_plain_span
from vtgrl.eval.types import Parsed

_NUMBER = re.compile(r"\d+(?:\.\d*)?")


@dataclass(frozen=True)
class TimeR1DifficultyConfig(TimeR1Config):
    """As Time-R1's evaluation."""


@register("parser", "time_r1_difficulty", config=TimeR1DifficultyConfig, paper="arXiv:2503.13377")
def time_r1_difficulty(text: str, *, duration: float | None, query: str, config: TimeR1DifficultyConfig) -> Parsed:
    """As `time_r1`; without such a form the first two numbers of the text."""
    window = last_plain_span(text)
    if window:
        return Parsed(window)
    numbers = _NUMBER.findall(text)
    return Parsed(((float(numbers[0]), float(numbers[1])),)) if len(numbers) >= 2 else Parsed()
