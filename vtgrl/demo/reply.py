"""What a model wrote, taken apart for the page: thoughts with the times that they name, the answer, the span. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vtgrl.core.named_times import named_times
from vtgrl.core.reasoning import think_block
from vtgrl.core.spans import SpanKind, parse_span
from vtgrl.core.types import Window

_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])\s+|(?<=\u3002)")
_TAG = re.compile(r"</?(?:think|answer)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Thought:
    """One sentence of the reasoning. `windows`: the times that it names, in seconds as written (a moment has start == end)."""

    text: str
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply to one question.

    text: all that the model wrote. thoughts: the sentences of its think block. answer: what follows that, without tags.
    window, kind, flags: the span as evaluation reads it (see `SpanResult`), inside [0, duration]. cut: it ran into the limit of tokens.
    """

    text: str
    duration: float
    thoughts: tuple[Thought, ...]
    answer: str
    window: Window | None
    kind: SpanKind
    flags: tuple[SpanKind, ...]
    cut: bool = False


def read_reply(text: str, *, duration: float, query: str = "", cut: bool = False) -> Reply:
    """Take a reply apart. Numbers of the `query` are no times, neither in the reasoning nor in the answer."""
    block = think_block(text)
    begin, end = (0, 0) if block is None else block
    sentences = [part.strip() for part in _SENTENCE_END.split(text[begin:end])]
    thoughts = tuple(Thought(part, named_times(part, query=query)) for part in sentences if part)
    span = parse_span(text, duration=duration, query=query)
    return Reply(text, duration, thoughts, _TAG.sub("", text[end:]).strip(), span.window, span.kind, span.flags, cut)
