"""lmms-eval, the TimeLens-Bench tasks."""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timelens import time_pairs
from vtgrl.eval.types import Parsed, Policy


@dataclass(frozen=True)
class LmmsTimeLensConfig(ParserConfig):
    """Inclusive thresholds, only the first true window, 0/0 is 0."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")


@register("parser", "lmms_timelens", config=LmmsTimeLensConfig, paper="arXiv:2512.14698")
def lmms_timelens(text: str, *, duration: float | None, query: str, config: LmmsTimeLensConfig) -> Parsed:
    """As `timelens`, with a guard against 0/0."""
    return Parsed(tuple(time_pairs(text)[:1]))
