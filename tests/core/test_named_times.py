"""Which thoughts name times."""

from __future__ import annotations

import pytest

from vtgrl.core.named_times import thinks_in_times


@pytest.mark.parametrize(
    ("thought", "timed"),
    [
        ("What is sought: the dog jumps.\nFrom 0.00s to 5.20s, the dog runs.", True),
        ("At 6.10s, it stops.", True),
        ("The square is visible from 1.00s to 2.50s.", True),
        ("What is sought: the dog jumps.", False),
        ("He takes 2 to 3 cups.", False),
        ("", False),
    ],
)
def test_times_inside_the_think_block(thought: str, timed: bool) -> None:
    assert thinks_in_times(f"<think>\n{thought}\n</think>\n<answer>1.00s to 2.00s</answer>") == timed


def test_neither_the_answer_nor_the_query_counts() -> None:
    assert not thinks_in_times("<answer>1.00s to 2.00s</answer>")
    assert not thinks_in_times("<think>What is sought: from 3s to 4s.</think>", query="from 3s to 4s")
    assert thinks_in_times("<think>From 1s to 2s, it")  # cut off
