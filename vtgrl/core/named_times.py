"""The times that a text names, wherever they stand: in thoughts, which state no answer."""

from __future__ import annotations

from vtgrl.core.reasoning import think_block
from vtgrl.core.span_pairs import find_pairs
from vtgrl.core.span_tokens import normalise, tokenize
from vtgrl.core.types import Window


def named_times(sentence: str, *, query: str = "") -> tuple[Window, ...]:
    """Time ranges that a sentence names, each once; without any, its single times that have a unit, as moments.

    Example: named_times("From 1.00s to 2.50s, it moves.") == ((1.0, 2.5),); named_times("At 6.1s, it stops.") == ((6.1, 6.1),)
    """
    tokens = tokenize(normalise(sentence.replace(query, " ") if query else sentence))
    ranges = [(min(p.start, p.end), max(p.start, p.end)) for p in find_pairs(tokens) if p.unit in ("", "s")]
    moments = [(t.value, t.value) for t in tokens if t.kind == "time" and t.unit == "s"]
    return tuple(dict.fromkeys(ranges or moments))


def thinks_in_times(text: str, *, query: str = "") -> bool:
    """Whether a line of the answer's think block names a time. Numbers of the query are none."""
    block = think_block(text)
    return block is not None and any(named_times(line, query=query) for line in text[block[0] : block[1]].splitlines())
