"""An answer -> captions. The form is strict: an answer that breaks it is refused whole. Events that cannot be used are dropped by name."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtgrl.core.types import Caption
from vtgrl.data.prompts.text import SPECIAL_TOKEN

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.S)
_FENCED = re.compile(r"^```[a-zA-Z]*[ \t]*\n(.*?)\n?[ \t]*```[ \t]*$", re.S | re.M)
_TAG = re.compile(r"</?[a-zA-Z][\w-]*>")
"""A tag inside a caption could end the thought that the caption becomes part of."""
SHOWN = 60
"""Characters of a faulty value that a message quotes."""
DIGITS = 2
"""Decimals of a time in seconds: finer than any frame interval in use."""


class Refused(Exception):
    """An answer that breaks the form; the text says how, in words that a model can act on."""


@dataclass(frozen=True)
class Parsed:
    """captions: at least one, ordered by start and end. dropped: reason -> events left out."""

    captions: tuple[Caption, ...]
    dropped: Mapping[str, int]


def parse_events(text: str, *, duration: float) -> Parsed:
    """Read {"events": [{"start", "end", "event"}, ...]} or the list alone; around it at most a thought or a code fence.

    Times are clipped to [0, duration] (seconds). Dropped and counted: an event that lies outside, ends before it starts, has no
    length, no text or a control token in it, or stands there twice.

    Raises:
        Refused: not JSON, another form, a wrong type, or no event that can be used.
    """
    events = _events(_decode(_payload(text)))
    dropped: Counter[str] = Counter()
    captions: set[Caption] = set()
    for number, event in enumerate(events, 1):
        found = _caption(event, number, duration=duration)
        if isinstance(found, str):
            dropped[found] += 1
        elif found in captions:
            dropped["repeated"] += 1
        else:
            captions.add(found)
    if not captions:
        raise Refused("it lists no event" if not events else f"no event can be used ({_counts(dropped)}) in a video of {duration:.2f} s")
    return Parsed(tuple(sorted(captions, key=lambda c: (c.start, c.end, c.text))), dict(dropped))


def _payload(text: str) -> str:
    """The answer without its thought; the inside of the code fence, when there is exactly one."""
    text = _THOUGHT.sub("", text, count=1).strip()
    fenced = _FENCED.findall(text)
    return str(fenced[0]) if len(fenced) == 1 else text


def _decode(text: str) -> Any:
    if not text:
        raise Refused("it is empty")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Refused(f"it is not JSON ({error.msg}, line {error.lineno} column {error.colno})") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise Refused("it is not JSON that can be read") from error


def _no_constant(name: str) -> float:
    raise Refused(f"{name} is no number of seconds")


def _events(value: Any) -> list[Any]:
    events = value.get("events") if isinstance(value, dict) else value
    if not isinstance(events, list):
        raise Refused('it is neither {"events": [...]} nor a list of events')
    return events


def _caption(event: Any, number: int, *, duration: float) -> Caption | str:
    """The caption, or why it is dropped."""
    if not isinstance(event, dict):
        raise Refused(f"event {number} is not an object but {_short(event)}")
    start, end = (_seconds(event, key, number) for key in ("start", "end"))
    text = event.get("event")
    if not isinstance(text, str):
        raise Refused(f'event {number}: "event" is not a text but {_short(text)}')
    if end < start:
        return "ends before it starts"
    if end > start and (start >= duration or end <= 0):
        return "outside the clip"
    low, high = (_rounded(time, duration) for time in (start, end))
    clean = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if high <= low:
        return "no length"
    if not clean:
        return "no text"
    return "control token" if SPECIAL_TOKEN.search(clean) or _TAG.search(clean) else Caption(low, high, clean)


def _seconds(event: Mapping[str, Any], key: str, number: int) -> float:
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused(f'event {number}: "{key}" is not a number of seconds but {_short(value)}')
    try:
        time = float(value)
    except OverflowError:
        time = math.inf
    if not math.isfinite(time):
        raise Refused(f'event {number}: "{key}" is not a finite number')
    return time


def _rounded(time: float, duration: float) -> float:
    """Inside the clip; rounding must not lead out of it again."""
    return min(max(round(time, DIGITS), 0.0), duration)


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _counts(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
