"""What the templates share: a clean query, times as text, the true span as an answer."""

from __future__ import annotations

import re

from vtgrl.core.errors import DataError
from vtgrl.core.types import Sample, Window
from vtgrl.data.caption_text import sentence
from vtgrl.data.prompts.types import VIDEO

SPECIAL_TOKEN = re.compile(r"<\|[^<>|\s]+\|>|" + re.escape(VIDEO))
"""Text that a tokenizer would turn into a control token, or that stands for the clip."""

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""Tags of an answer's two blocks."""


def clean_query(sample: Sample) -> str:
    """The query without surrounding space and without one final period: published files differ only in these.

    Raises:
        DataError: it holds a special token such as <|video_pad|>, which would count as a place for pixels.
    """
    query = sample.query.strip()
    query = query.removesuffix(".").rstrip() if not query.endswith("..") else query
    return no_special_token(query, sample)


def no_special_token(text: str, sample: Sample) -> str:
    """The text itself.

    Raises:
        DataError: it holds a special token.
    """
    found = SPECIAL_TOKEN.search(text)
    if found:
        raise DataError(f"sample {sample.id!r}: the text holds the special token {found.group()}; remove it from the row")
    return text


def need_span(sample: Sample, template: str) -> None:
    """DataError for a sample that does not ask for a time span, or has no clip."""
    if sample.task != "vtg" or sample.video is None:
        raise DataError(f"sample {sample.id!r}: prompt {template!r} asks for a time span, the task is {sample.task!r}; use prompt 'plain'")


def true_span(sample: Sample, duration: float) -> Window | None:
    """The span that an answer should name: the longest window, ended at the clip's end; None without windows.

    Raises:
        DataError: the window starts after the end of the clip as it was decoded.
    """
    if not sample.windows:
        return None
    start, end = max(sample.windows, key=lambda window: window[1] - window[0])
    if start >= duration:
        raise DataError(f"sample {sample.id!r}: window [{start}, {end}] starts after the clip's end ({duration:.2f} s)")
    return start, min(end, duration)


def thought_and_answer(thought: str, answer: str) -> str:
    """A thinking block on its own lines, then the answer block."""
    return f"<think>\n{thought}\n</think>\n<answer>{answer}</answer>"


def caption_lines(sample: Sample, duration: float) -> list[str]:
    """One line for each caption that begins inside the clip, with its time range, in order of time.

    Raises:
        DataError: a caption holds a special token, or a tag that would end the thought.
    """
    inside = sorted((c for c in sample.captions if c.start < duration), key=lambda c: (c.start, c.end))
    return [_one_line(no_special_token(sentence(c, duration=duration), sample), sample) for c in inside]


def _one_line(text: str, sample: Sample) -> str:
    tag = next((tag for tag in TAGS if tag in text), None)
    if tag:
        raise DataError(f"sample {sample.id!r}: a caption holds the tag {tag}; remove it from the row")
    return " ".join(text.split())
