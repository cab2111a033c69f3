"""Prompt templates: order, few tokens, answers in the form that the rewards read, no control tokens from data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vtgrl.core.errors import DataError
from vtgrl.core.registry import get, names
from vtgrl.core.spans import parse_span
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.prompts.types import VIDEO, Chat

SAMPLE = Sample(
    id="row-3",
    task="vtg",
    query=" the dog {jumps} .",
    video=VideoRef("a.mp4", duration=30.0),
    windows=((8.5, 12.4),),
    captions=(Caption(0.0, 5.0, "a dog runs."), Caption(8.5, 40.0, "it jumps."), Caption(31.0, 32.0, "after the end.")),
)
GROUNDING = ("direct", "taro", "time_r1")


def chat(name: str, sample: Sample = SAMPLE, *, duration: float = 30.0, **config: Any) -> Chat:
    entry = get("prompt", name)
    return entry.fn(sample, duration=duration, config=entry.config(**config))


def test_all_templates_are_registered() -> None:
    assert {"direct", "plain", "taro", "time_r1"} <= set(names("prompt"))


@pytest.mark.parametrize("name", GROUNDING)
def test_video_comes_first_and_once(name: str) -> None:
    user = chat(name).user
    assert user[0] == VIDEO
    assert user.count(VIDEO) == 1
    assert "the dog {jumps}" in user[1]
    assert "{jumps} ." not in user[1]


def test_time_r1_text_first() -> None:
    last, first = chat("time_r1").user, chat("time_r1", text_first=True).user
    assert first == last[::-1]


@pytest.mark.parametrize(
    ("query", "clean"),
    [(" A man sits. ", "A man sits"), ("A man sits", "A man sits"), ("why?", "why?"), ("so ...", "so ..."), ("a.b", "a.b"), ("x .", "x")],
)
def test_query_is_cleaned_the_same_way_everywhere(query: str, clean: str) -> None:
    assert chat("direct", replace(SAMPLE, query=query)).user == (VIDEO, clean)


@pytest.mark.parametrize("name", GROUNDING)
def test_targets_are_read_back_by_the_parser(name: str) -> None:
    target = chat(name).target
    assert target is not None
    assert parse_span(target, duration=30.0).window == (8.5, 12.4)
    assert target.count("<answer>") == target.count("</answer>") == 1


def test_answers_have_each_form() -> None:
    assert chat("direct").target == "<answer>8.50s to 12.40s</answer>"
    assert chat("direct", think=True).target == "<think>the dog {jumps}</think><answer>8.50s to 12.40s</answer>"
    assert (chat("time_r1").target or "").endswith("</think>\n<answer>8.50 to 12.40</answer>")
    taro = (chat("taro").target or "").splitlines()
    assert taro[0] == "<think>"
    assert taro[2:] == [
        "From 0.00s to 5.00s, a dog runs.",
        "From 8.50s to 30.00s, it jumps.",
        "Therefore the sought moment is from 8.50s to 12.40s.",
        "</think>",
        "<answer>8.50s to 12.40s</answer>",
    ]


def test_direct_is_the_query_alone() -> None:
    assert chat("direct").user == (VIDEO, "the dog {jumps}")


@pytest.mark.parametrize("name", GROUNDING)
def test_target_of_odd_windows(name: str) -> None:
    assert chat(name, replace(SAMPLE, windows=())).target is None
    several = chat(name, replace(SAMPLE, windows=((1.0, 2.0), (8.0, 13.0), (20.0, 25.0)))).target
    assert parse_span(several or "", duration=30.0).window == (8.0, 13.0)  # the longest; the first of equals
    short = chat(name, duration=10.0).target
    assert parse_span(short or "", duration=10.0).window == (8.5, 10.0)
    with pytest.raises(DataError, match=r"'row-3': window \[8\.5, 12\.4\] starts after the clip's end \(8\.00 s\)"):
        chat(name, duration=8.0)


@pytest.mark.parametrize("name", [*GROUNDING, "plain"])
@pytest.mark.parametrize("token", ["<|video_pad|>", "<|im_end|>", "<|vision_start|>", "<video>"])
def test_special_tokens_in_a_query_name_the_row(name: str, token: str) -> None:
    with pytest.raises(DataError, match=r"sample 'row-3': the text holds the special token") as caught:
        chat(name, replace(SAMPLE, query=f"find {token} now"))
    assert token in str(caught.value)


def test_special_tokens_in_captions_and_options_too() -> None:
    with pytest.raises(DataError, match="row-3"):
        chat("taro", replace(SAMPLE, captions=(Caption(0.0, 1.0, "<|im_start|>"),)))
    with pytest.raises(DataError, match="row-3"):
        chat("plain", replace(SAMPLE, options=("a", "<|im_start|>")))
    assert "a < b | c > d" in chat("direct", replace(SAMPLE, query="a < b | c > d")).user[1]


@pytest.mark.parametrize("name", GROUNDING)
def test_other_tasks_are_sent_to_plain(name: str) -> None:
    for sample in (replace(SAMPLE, task="qa"), replace(SAMPLE, video=None)):
        with pytest.raises(DataError, match="use prompt 'plain'"):
            chat(name, sample)


def test_plain_question() -> None:
    qa = replace(SAMPLE, task="qa", query="Who jumps?", options=("a dog", "a cat"), answer="A")
    assert chat("plain", qa) == Chat((VIDEO, "Who jumps?\nA. a dog\nB. a cat"), target="A")
    text = Sample(id="t", task="text", query="2 + 2?", answer="4")
    assert chat("plain", text, instruction="Be short.") == Chat(("2 + 2?\nBe short.",), target="4")
    with pytest.raises(DataError, match="27 options"):
        chat("plain", replace(qa, options=("x",) * 27))
