"""VideoChat-R1, evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.time_r1 import last_plain_span
from vtgrl.eval.types import Parsed, Policy


@dataclass(frozen=True)
class VideoChatR1Config(ParserConfig):
    """Inclusive thresholds on an IoU that is not clamped; an exception (0/0) takes the row out of the original's denominator."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("crash", "what the original does on 0/0")


@register("parser", "videochat_r1", config=VideoChatR1Config, paper="arXiv:2504.06958")
def videochat_r1(text: str, *, duration: float | None, query: str, config: VideoChatR1Config) -> Parsed:
    """As `time_r1`: the last "X to Y" (or "and") anywhere, lower case, no unit between."""
    return Parsed(last_plain_span(text))
