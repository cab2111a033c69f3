"""OMTG-Bench in VLMEvalKit: one query, many moments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Window
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed, Policy

_TAG = re.compile(r"<time>(\S+?)\s*-\s*(\S+?)\s*seconds?</time>", re.IGNORECASE)
_TIME = r"\d+(?::\d+(?:\.\d+)?)?(?:\.\d+)?"
_SECONDS = re.compile(rf"(?<!\d)({_TIME})\s*-\s*({_TIME})\s*seconds?", re.IGNORECASE)
_NUMBER = r"\d+(?:\.\d+)?"
# In the two sentence forms nothing follows the second time, so only its first character is read: "ends at 12.4" ends at 1.
_OTHERS = (
    re.compile(r"starts\s+at\s+(\S+?)(?:\s+seconds?)?\s+and\s+ends\s+at\s+(\S)", re.IGNORECASE),
    re.compile(r"start\s+is\s+at\s+(\S+?)(?:\s+seconds?)?\s+and\s+(?:the\s+)?end\s+is\s+at\s+(\S)", re.IGNORECASE),
    re.compile(rf"(?<!\d)({_NUMBER})\s+to\s+({_NUMBER})", re.IGNORECASE),
    re.compile(rf"(?<!\d)({_NUMBER})\s*-\s*({_NUMBER})(?!\s*(?:seconds?|</time>))", re.IGNORECASE),
    re.compile(rf"\[\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\]"),
)


@dataclass(frozen=True)
class OmtgConfig(ParserConfig):
    """IoU of the merged sets, inclusive thresholds."""

    policy: Policy = opt("set", "several true windows: best match, the first one, or all as a set")
    iou: Literal["hull", "merged", "pairwise"] = opt("merged", "definition of the overlap, see vtgrl/eval/iou.py")


@register("parser", "omtg", config=OmtgConfig)
def omtg(text: str, *, duration: float | None, query: str, config: OmtgConfig) -> Parsed:
    """All windows with end > start: <time> tags, else "a - b seconds", else starts at .. ends at, a to b, a - b and [a, b]."""
    for pattern in (_TAG, _SECONDS):
        windows = _windows(pattern, text, _seconds)
        if windows:
            return Parsed(tuple(sorted(windows, key=lambda w: w[0])))
    found = [w for pattern in _OTHERS for w in _windows(pattern, text, _seconds if pattern in _OTHERS[:2] else _plain)]
    return Parsed(tuple(dict.fromkeys(sorted(found, key=lambda w: w[0]))))


def _windows(pattern: re.Pattern[str], text: str, value: Callable[[str], float | None]) -> list[Window]:
    pairs = [(value(a), value(b)) for a, b in pattern.findall(text)]
    return [(start, end) for start, end in pairs if start is not None and end is not None and end > start]


def _plain(digits: str) -> float | None:
    return float(digits)


def _seconds(text: str) -> float | None:
    """Seconds of "12.5", "1:12" or "0:01:12"; None for anything else."""
    parts = text.strip().split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        return None
    if len(values) > 3:
        return None
    total = 0.0
    for item in values:
        total = total * 60 + item
    return total
