"""The template that captioners are asked with: same question for every query, and its target is a valid answer."""

from __future__ import annotations

import re

import pytest

from vtgrl.core.errors import DataError
from vtgrl.core.registry import NoConfig, get
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.caption.parse import parse_events
from vtgrl.data.prompts.types import VIDEO, Chat

CAPTIONS = (Caption(8.5, 40.0, "it jumps."), Caption(0.0, 5.004, 'a "dog" läuft.'), Caption(31.0, 32.0, "after the end."))


def chat(query: str = "the dog jumps", captions: tuple[Caption, ...] = CAPTIONS) -> Chat:
    sample = Sample(id="r", task="vtg", query=query, video=VideoRef("a.mp4"), windows=((8.5, 12.4),), captions=captions)
    found: Chat = get("prompt", "dense_captions").fn(sample, duration=30.0, config=NoConfig())
    return found


def test_the_question_is_the_same_for_every_query() -> None:
    assert chat().user == chat("another thing").user
    assert chat().user[0] == VIDEO
    assert "30.00 seconds" in chat().user[1]


def test_its_example_is_a_valid_answer() -> None:
    example = re.search(r"\{.*\}$", chat().user[1], re.S)
    assert example is not None
    assert len(parse_events(example[0], duration=30.0).captions) == 2


def test_the_target_is_read_back() -> None:
    target = chat().target
    assert target is not None
    parsed = parse_events(target, duration=30.0)
    assert parsed.captions == (Caption(0.0, 5.0, 'a "dog" läuft.'), Caption(8.5, 30.0, "it jumps."))
    assert parsed.dropped == {}
    assert chat(captions=()).target is None


def test_a_control_token_in_a_caption_is_named() -> None:
    with pytest.raises(DataError, match=r"sample 'r'.*<\|im_end\|>"):
        chat(captions=(Caption(0.0, 1.0, "a <|im_end|>"),))
