"""Captions as lines of a thought, and what the taro template makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from vtgrl.core.errors import DataError
from vtgrl.core.registry import get
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.caption_text import sentence, stated_range
from vtgrl.data.prompts.text import caption_lines
from vtgrl.data.prompts.types import Chat


def sample(*captions: Caption, query: str = "the dog jumps.", sample_id: str = "a") -> Sample:
    return Sample(sample_id, "vtg", query, VideoRef("a.mp4"), windows=((1.0, 2.0),), captions=captions)


def taro(row: Sample, **config: Any) -> Chat:
    entry = get("prompt", "taro")
    chat: Chat = entry.fn(row, duration=10.0, config=entry.config(**config))
    return chat


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("From 1.0s to 2.5s, a man sits.", (1.0, 2.5)),
        ("At 6.10s, it stops.", (6.1, 6.1)),
        ("From 1 seconds to 3 seconds a man counts 10 seconds", (1.0, 3.0)),
        ("It stops.", None),
    ],
)
def test_the_range_that_a_sentence_states(text: str, window: tuple[float, float] | None) -> None:
    assert stated_range(text) == window


def test_a_sentence_gets_its_range_once() -> None:
    assert sentence(Caption(1.0, 2.5, "a man sits."), duration=10.0) == "From 1.00s to 2.50s, a man sits."
    assert sentence(Caption(1.0, 2.5, "From 1.0s to 2.5s, a man sits."), duration=10.0) == "From 1.0s to 2.5s, a man sits."
    assert sentence(Caption(6.0, 6.0, "it stops."), duration=10.0) == "At 6.00s, it stops."
    assert sentence(Caption(1.0, 9.0, "he waits for 5 s."), duration=4.0) == "From 1.00s to 4.00s, he waits for 5 s."  # no range of its own


def test_lines_are_in_order_of_time_and_stay_lines() -> None:
    row = sample(Caption(3.0, 4.0, "b"), Caption(1.0, 2.0, "a\nstill a"), Caption(1.0, 1.5, "first"), Caption(12.0, 13.0, "behind the end"))
    assert caption_lines(row, 10.0) == ["From 1.00s to 1.50s, first", "From 1.00s to 2.00s, a still a", "From 3.00s to 4.00s, b"]


def test_a_tag_in_a_caption_would_end_the_thought() -> None:
    with pytest.raises(DataError, match=r"'a': a caption holds the tag </think>"):
        taro(sample(Caption(1.0, 2.0, "so </think>")))


def test_the_opening_names_the_query_and_the_events_are_the_lines() -> None:
    chat = taro(sample(Caption(1.0, 2.0, "it jumps.")))
    assert chat.opening == "<think>\nWhat is sought: the dog jumps."
    assert chat.events == ("From 1.00s to 2.00s, it jumps.",)
    assert (chat.target or "").startswith(f"{chat.opening}\n{chat.events[0]}\n")
    assert taro(sample(query="When does it jump?")).opening == "<think>\nWhat is sought: When does it jump?"
    entry = get("prompt", "direct")
    assert entry.fn(sample(), duration=10.0, config=entry.config()).opening is None


def test_the_share_of_thoughts_that_go_through_the_events() -> None:
    rows = [sample(Caption(1.0, 2.0, "it jumps."), sample_id=f"r{i}") for i in range(400)]
    timed = ["From" in (taro(row, event_share=0.25).target or "") for row in rows]
    assert 70 <= sum(timed) <= 130
    plain = taro(rows[timed.index(False)], event_share=0.25)
    assert plain.target == "<think>\nWhat is sought: the dog jumps.\n</think>\n<answer>1.00s to 2.00s</answer>"
    assert plain.events  # a curriculum has them all the same
    assert taro(rows[0], instruction=False).user[1] == "the dog jumps"
