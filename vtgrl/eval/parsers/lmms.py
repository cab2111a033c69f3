"""lmms-eval, Charades-STA since May 2026 (pull request 1323)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Window
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timechat import EXAMPLE, clock_seconds, first_in_order, keyword_sentences, paired, split_sentences
from vtgrl.eval.types import Parsed, Policy

_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?"
_NUMBER = r"\d+(?:\.\d+)?"
_CLOCK_RANGE = re.compile(rf"\b({_CLOCK})\s*[\u2013-]\s*({_CLOCK})\b")
_RANGE = re.compile(rf"(?<!\d)({_NUMBER})\s*[\u2013-]\s*({_NUMBER})")
_LONE_CLOCK = re.compile(rf"\b{_CLOCK}\b")
_LONE_NUMBER = re.compile(rf"\b{_NUMBER}\b")
_UNIT_RANGE = re.compile(rf"(?<!\d)({_NUMBER})\s*s?\s*[\u2013-]\s*({_NUMBER})\s*s?")


@dataclass(frozen=True)
class LmmsConfig(ParserConfig):
    """Inclusive thresholds, 0/0 is 0."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")


@register("parser", "lmms", config=LmmsConfig)
def lmms(text: str, *, duration: float | None, query: str, config: LmmsConfig) -> Parsed:
    """The first clock range, "a - b", clocks in pairs, first numbers of sentences in pairs, or "a s - b s"; put in order.

    Every "to" counts as "-". Only sentences that say start, end or happen are read, or all when none does.
    """
    text = text.lower().replace(EXAMPLE, "").replace("to", "-")
    sentences = keyword_sentences(text) or split_sentences(text)
    clocks = [clock_seconds(c) for s in sentences for c in _LONE_CLOCK.findall(s)]
    windows = (
        _first_ranges(_CLOCK_RANGE, sentences, clock_seconds)
        or _first_ranges(_RANGE, sentences, float)
        or paired(clocks)
        or paired([float(found.group()) for s in sentences if (found := _LONE_NUMBER.search(s))])
        or _first_ranges(_UNIT_RANGE, sentences, float)
    )
    return Parsed(first_in_order(windows))


def _first_ranges(pattern: re.Pattern[str], sentences: Sequence[str], value: Callable[[str], float]) -> list[Window]:
    """All ranges of the first sentence that has one."""
    for sentence in sentences:
        found = pattern.findall(sentence)
        if found:
            return [(value(a), value(b)) for a, b in found]
    return []
