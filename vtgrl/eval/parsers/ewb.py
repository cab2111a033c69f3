"""lmms-eval, ExtremeWhenBench."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed, Policy

_SPAN = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)\s*(?:to|[-~\u2013\u2014])\s*(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class EwbConfig(ParserConfig):
    """Inclusive thresholds, 0/0 is 0."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")


@register("parser", "ewb", config=EwbConfig)
def ewb(text: str, *, duration: float | None, query: str, config: EwbConfig) -> Parsed:
    """The last "a to b", "a - b", "a ~ b" or dash form, put in order."""
    found = _SPAN.findall(text)
    if not found:
        return Parsed()
    start, end = float(found[-1][0]), float(found[-1][1])
    return Parsed(((end, start),)) if start > end else Parsed(((start, end),))
