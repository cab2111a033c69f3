"""Reasoning tokens against byte offsets: any cut of the text into tokens, through tags and through characters."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from vtgrl.core.reasoning import CLOSE, OPEN, reasoning_tokens, think_block

ANSWER = "<answer>3s to 4s</answer>"


def tokens(*pieces: str | bytes) -> tuple[list[int], Callable[[Sequence[int]], str]]:
    """Ids 0, 1, ... for the pieces, and a byte-level decoder."""
    table = [p.encode() if isinstance(p, str) else p for p in pieces]
    return list(range(len(table))), lambda ids: b"".join(table[i] for i in ids).decode("utf-8", errors="replace")


def found(*pieces: str | bytes, ended: bool = False) -> list[int]:
    ids, decode = tokens(*pieces)
    return list(reasoning_tokens(ids, decode=decode, ended=ended))


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        (["<think>", "I", " see", "</think>", ANSWER], [1, 2]),
        (["<", "think", ">", "I", " see", "</", "think", ">", ANSWER], [3, 4]),
        (["<think", ">\n", "I", " see.", ".</", "think>", ANSWER], [2, 3]),  # a token with a part of a tag is none
        (["<think>I", " see</think>"], []),
        (["<think>", "</think>", ANSWER], []),
        (["I see 3s", ANSWER], []),
        (["<think>", "cut", " of"], [1, 2]),
        (["I", " see", "</think>", ANSWER], [0, 1]),  # the chat format wrote the open tag
        (["<think>", "a", "</think>", "<think>", "b", "</think>"], [1]),
        (["x ", "<think>", "a", "</think>", " tail"], [2]),
        (["<think>", "a", "<think>", "b", "</think>"], [1, 2, 3]),
        ([], []),
    ],
)
def test_blocks(pieces: list[str], wanted: list[int]) -> None:
    assert found(*pieces) == wanted


def test_the_end_token_is_never_reasoning() -> None:
    assert found("<think>", "a", "<|im_end|>", ended=True) == [1]
    assert found("<think>", "a", "</think>", "<|im_end|>", ended=True) == [1]
    assert found("<think>", "a", " b", ended=False) == [1, 2]


def test_characters_of_several_tokens() -> None:
    cat = "猫".encode()
    assert found("<think>", cat[:1], cat[1:2], cat[2:], "!", "</think>") == [1, 2, 3, 4]
    assert found("<think>", cat[:1], cat[1:], "</think>") == [1, 2]
    assert found(b"<think>" + cat[:1], cat[1:], "a", "</think>") == [1, 2]
    assert found("<think>", cat[:2], "</think>") == [1]  # bytes that never become a character
    assert found("<think>", "a", cat[:2]) == [1, 2]


def test_any_cut_into_tokens() -> None:
    rng = random.Random(0)
    for case in range(2000):
        inside = "".join(rng.choices(["a", "é", "猫", "🎉", "<", ">", "\n", "\ufffd", "</thin"], k=rng.randrange(12)))
        text = rng.choice(["", "é", "<"]) + OPEN + inside + rng.choice([CLOSE + ANSWER + "é", ""])
        raw = text.encode()
        cuts = sorted({0, len(raw), *rng.choices(range(len(raw) + 1), k=rng.randrange(len(raw) + 1))})
        ids, decode = tokens(*(raw[a:b] for a, b in pairwise(cuts)))
        block = think_block(text)
        assert block is not None
        begin, end = (len(text[:i].encode()) for i in block)
        wanted = [i for i, (a, b) in enumerate(pairwise(cuts)) if a >= begin and b <= end]
        assert list(reasoning_tokens(ids, decode=decode, ended=False)) == wanted, (case, text, cuts)


def test_few_decodes() -> None:
    ids, decode = tokens("<think>", *["a"] * 5000, "</think>")
    calls = []

    def counted(part: Sequence[int]) -> str:
        calls.append(len(part))
        return decode(part)

    assert reasoning_tokens(ids, decode=counted, ended=False) == range(1, 5001)
    assert len(calls) < 40
