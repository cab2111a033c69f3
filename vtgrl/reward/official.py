"""How TaRO and Time-R1 read an answer for their rewards, faults included. Reproduction only: vtgrl's own is core/spans.

Neither swaps, clamps or reads signs, so `-5.00s` is 5 and `.50s` is 50. TaRO: arXiv 2606.09248; Time-R1: arXiv 2503.13377.
"""

from __future__ import annotations

import re

from vtgrl.core.types import Window

OPEN, CLOSE = "<answer>", "</answer>"

# A number starts where a run of digits starts: the same matches as without the look-behind, in linear time.
_NUMBER = r"(?<![0-9])([0-9]+(?:\.[0-9]*)?)"
_TARO = re.compile(rf"{_NUMBER}s (?:to|and) {_NUMBER}s", re.IGNORECASE)
_TIME_R1 = re.compile(rf"{_NUMBER} (?:to|and) {_NUMBER}", re.IGNORECASE)


def taro_window(text: str) -> Window | None:
    """Last `<number>s to|and <number>s` of the last complete answer block, in the order of the text."""
    return _last_match(_TARO, text)


def time_r1_window(text: str) -> Window | None:
    """Last `<number> to|and <number>` of the last complete answer block, in the order of the text."""
    return _last_match(_TIME_R1, text)


def last_answer(text: str) -> str | None:
    """Content of the last complete answer block; a block starts at the first open tag behind the one before."""
    found, at = None, 0
    while (start := text.find(OPEN, at)) >= 0 and (end := text.find(CLOSE, start)) >= 0:
        found, at = text[start + len(OPEN) : end], end + len(CLOSE)
    return found


def _last_match(pattern: re.Pattern[str], text: str) -> Window | None:
    answer = last_answer(text)
    matches = pattern.findall(answer) if answer is not None else []
    return (float(matches[-1][0]), float(matches[-1][1])) if matches else None
