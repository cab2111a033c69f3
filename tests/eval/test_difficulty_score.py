"""How a row's p is read from an answer, against faults of Time-R1's difficulty script (taro.md R5, R7): the reward's own parser."""

from __future__ import annotations

import pytest

from tests.eval.kit import sample
from vtgrl.core.types import Window
from vtgrl.eval.score import Output, make_scorer, score


def p(text: str | None, window: Window, query: str = "he eats") -> float:
    (row,) = score(make_scorer("vtgrl"), [sample("a", [window], duration=30.0, query=query)], [Output(text)])
    return float(row["iou"])


def test_no_length_at_all_is_zero_not_nan() -> None:
    """R5: 0 / 0 there, which makes the mean of a whole file NaN."""
    assert p("<answer>5.0 to 5.0</answer>", (5.0, 5.0)) == 0.0


@pytest.mark.parametrize("text", ["<think>person 1 sits at 3 s", "<think>person 1 sits at 3 s</think>", "person 1 sits at 3 s", None])
def test_the_first_two_numbers_of_a_text_are_no_answer(text: str | None) -> None:
    """R7: the published fallback reads [1, 3]."""
    assert p(text, (1.0, 3.0)) == 0.0


def test_the_last_pair_counts_and_units_do_not_matter() -> None:
    assert p("<think>2 to 4</think><answer>8.5 to 12.4</answer>", (8.5, 12.4)) == 1.0
    assert p("<think>2 to 4</think><answer>8.50s to 12.40s</answer>", (8.5, 12.4)) == 1.0
