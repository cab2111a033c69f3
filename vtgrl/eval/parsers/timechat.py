"""TimeChat, evaluation; also the sentence rules that lmms-eval inherited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Window
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed, Policy

EXAMPLE = "a specific example is : 20.8 - 30.0 seconds"
"""The prompt's example, which models repeat."""

_SENTENCE_END = re.compile(r"[!?\n]")
_KEYWORDS = ("start", "end", "happen")
DASH_SPAN = re.compile(r"(?<!\d)(\d+(?:\.+\d*)?)\s*-\s*(\d+(?:\.+\d*)?)")
_WORD_NUMBER = re.compile(r"\b(\d+\.\d+\b|\b\d+)\b")
_CLOCK = re.compile(r"\b\d{1,2}:\d{2}:\d{2}\b")


@dataclass(frozen=True)
class TimeChatConfig(ParserConfig):
    """Inclusive thresholds; 0/0 raises in the original."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("crash", "what the original does on 0/0")


@register("parser", "timechat", config=TimeChatConfig, paper="arXiv:2312.02051")
def timechat(text: str, *, duration: float | None, query: str, config: TimeChatConfig) -> Parsed:
    """The first "a - b" (no "to"); else the first number of each sentence that says start, end or happen, in pairs."""
    text = text.lower()
    sentences = keyword_sentences(text)
    return Parsed(first_in_order(dash_spans([text]) or paired(first_numbers(sentences)) or paired(first_clocks(sentences))))


def split_sentences(text: str) -> list[str]:
    """Parts between exclamation marks, question marks and line ends; a full stop ends nothing."""
    return _SENTENCE_END.split(text)


def keyword_sentences(text: str) -> list[str]:
    """Sentences with start, end or happen, also inside longer words."""
    return [s for s in split_sentences(text) if any(word in s for word in _KEYWORDS)]


def dash_spans(parts: Iterable[str]) -> list[Window]:
    """All "a - b" of the first part that has one."""
    for part in parts:
        found = DASH_SPAN.findall(part)
        if found:
            return [(to_number(a), to_number(b)) for a, b in found]
    return []


def to_number(digits: str) -> float:
    """A float; the originals stop with an error on "1..5", here the first dot counts."""
    whole, _, rest = digits.partition(".")
    return float(f"{whole}.{rest.lstrip('.') or '0'}")


def first_numbers(sentences: Iterable[str]) -> list[float]:
    """The first free-standing number of each sentence that has one."""
    return [float(found.group()) for s in sentences if (found := _WORD_NUMBER.search(s))]


def first_clocks(sentences: Iterable[str]) -> list[float]:
    """The first h:mm:ss of each sentence that has one, in seconds."""
    return [clock_seconds(found.group()) for s in sentences if (found := _CLOCK.search(s))]


def clock_seconds(clock: str) -> float:
    """Seconds of "h:mm:ss" or "mm:ss" (the last part may have a fraction)."""
    total = 0.0
    for part in clock.split(":"):
        total = total * 60 + float(part)
    return total


def paired(values: Sequence[float]) -> list[Window]:
    """Neighbours as windows; an odd last value is dropped."""
    return list(zip(values[::2], values[1::2], strict=False))


def first_in_order(windows: Sequence[Window]) -> tuple[Window, ...]:
    """The first window, its ends exchanged when needed."""
    if not windows:
        return ()
    start, end = windows[0]
    return ((start, end) if end > start else (end, start),)
