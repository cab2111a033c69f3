"""Captions as sentences: with their time range, as the thoughts of a grounding answer have it."""

from __future__ import annotations

import re

from vtgrl.core.types import Caption, Window

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(?:s\b|seconds?\b)")


def stated_range(text: str) -> Window | None:
    """The times that a sentence begins with: "From 1.0s to 2.5s, a man sits." -> (1.0, 2.5); one time alone is a moment.

    None without a time in seconds. Only the first two times are read, in the order in which they stand.
    """
    times = [float(t) for t in _TIME.findall(text)[:2]]
    return (times[0], times[-1]) if times else None


def sentence(caption: Caption, *, duration: float) -> str:
    """The caption with its time range in front, ended at the clip's end; as it is when it states its own range already."""
    if stated_range(caption.text) == (caption.start, caption.end):
        return caption.text
    if caption.start == caption.end:
        return f"At {seconds(caption.start)}, {caption.text}"
    return f"From {seconds(caption.start)} to {seconds(min(caption.end, duration))}, {caption.text}"


def seconds(time: float) -> str:
    """8.5 -> "8.50s"."""
    return f"{time:.2f}s"
