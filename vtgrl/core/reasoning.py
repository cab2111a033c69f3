"""Which tokens of an answer are its reasoning: those inside its think block.

Found in the text, then carried back to tokens by decoding prefixes of the answer: a tag may share tokens with the text
around it, and a character may take several tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

OPEN, CLOSE = "<think>", "</think>"


def reasoning_tokens(ids: Sequence[int], *, decode: Callable[[Sequence[int]], str], ended: bool) -> range:
    """Token indices of the reasoning; empty without a think block.

    A token that holds a part of a tag is left out. A block that is never closed reaches to the end of the answer; one that is
    closed and never opened begins with it (the chat format opened it).

    Args:
        decode: ids to text, special tokens included.
        ended: the last id is the end token, which is never reasoning.
    """
    ids = ids[: len(ids) - 1] if ended else ids
    text = decode(ids)
    block = think_block(text)
    if block is None:
        return range(0)

    def known(count: int) -> int:
        """Characters of `text` that the first `count` tokens settle: a character counts once all its bytes are there."""
        return _common(decode(ids[:count]), text)

    counts = range(len(ids) + 1)
    start = bisect_left(counts, block[0], key=known)
    end = len(ids) if block[1] == len(text) else bisect_right(counts, block[1], key=known) - 1
    return range(start, max(start, end))


def think_block(text: str) -> tuple[int, int] | None:
    """(begin, end) of what the first think block holds, without its tags; None when there is none."""
    opened = text.find(OPEN)
    begin = opened + len(OPEN)
    closed = text.find(CLOSE, begin if opened >= 0 else 0)
    if opened < 0:
        return None if closed < 0 else (0, closed)
    return begin, closed if closed >= 0 else len(text)


def _common(a: str, b: str) -> int:
    """Length of the common beginning."""
    if b.startswith(a):
        return len(a)
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
