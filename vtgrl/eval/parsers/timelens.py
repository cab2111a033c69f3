"""TimeLens, evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Window
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timechat import clock_seconds, paired
from vtgrl.eval.types import Parsed, Policy

_CLOCK = re.compile(r"\b(?:\d{1,2}:\d{2}:\d{2}(?:\.\d+)?|\d{1,2}:\d{2}(?:\.\d+)?)\b")
_VALUE = r"\d+(?:\.\d*)?"
_RANGES = tuple(re.compile(rf"(?<!\d)({_VALUE}){link}({_VALUE})") for link in (r"\s*-\s*", r"\s+to\s+"))
_NUMBER = re.compile(rf"\b{_VALUE}\b")


@dataclass(frozen=True)
class TimeLensConfig(ParserConfig):
    """Inclusive thresholds; 0/0 raises in the original."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("crash", "what the original does on 0/0")


@register("parser", "timelens", config=TimeLensConfig, paper="arXiv:2512.14698")
def timelens(text: str, *, duration: float | None, query: str, config: TimeLensConfig) -> Parsed:
    """Clocks in pairs, else "a-b", else "a to b", else all bare numbers in pairs (8.50s is read as 8); first pair, order kept."""
    return Parsed(tuple(time_pairs(text)[:1]))


def time_pairs(text: str) -> list[Window]:
    """All windows that TimeLens reads from a text."""
    text = text.lower()
    clocks = paired([clock_seconds(c) for c in _CLOCK.findall(text)])
    if clocks:
        return clocks
    for pattern in _RANGES:
        found = pattern.findall(text)
        if found:
            return [(float(a), float(b)) for a, b in found]
    return paired([float(n) for n in _NUMBER.findall(text)])
