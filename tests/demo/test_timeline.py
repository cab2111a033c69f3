"""A reply taken apart and drawn: ranges, clamps, escaping, no span. No gradio, no torch."""

from __future__ import annotations

import re

import pytest

from vtgrl.core.named_times import named_times
from vtgrl.demo.reply import read_reply
from vtgrl.demo.timeline import NOTES, WHY_NONE, Bar, answer, pack, problem, reasoning, timeline

TARO = (
    "<think>\nWhat is sought: When is the red square visible?\nFrom 1.00s to 2.50s, the blue circle is visible.\n"
    "At 3.00s, it goes.\nTherefore the sought moment is from 2.00s to 6.00s.\n</think>\n<answer>2.00s to 6.00s</answer>"
)


def bars(html: str, kind: str) -> list[tuple[float, float]]:
    """(left, width) in percent of the bars of a kind."""
    found = re.findall(rf'class="vt-bar vt-{kind}" style="left:([\d.]+)%;width:([\d.]+)%"', html)
    return [(float(left), float(width)) for left, width in found]


@pytest.mark.parametrize(
    ("sentence", "windows"),
    [
        ("From 1.00s to 2.50s, it moves.", ((1.0, 2.5),)),
        ("It runs (0:05 - 0:07), then sits from 8 to 9.5 seconds.", ((5.0, 7.0), (8.0, 9.5))),
        ("So the stretch that fits is 12.54 to 17.83.", ((12.54, 17.83),)),
        ("From 4.0s to 2.0s it turns back.", ((2.0, 4.0),)),
        ("At 6.10s, it stops.", ((6.1, 6.1),)),
        ("1.0s to 2.0s, again 1.0s to 2.0s", ((1.0, 2.0),)),
        ("He takes 2 to 3 cups and 4 spoons.", ()),
        ("It lies in the first 10% to 20% of the clip.", ()),
    ],
)
def test_times_of_a_sentence(sentence, windows):
    assert named_times(sentence) == windows


def test_times_of_the_query_are_not_times_of_the_thought():
    query = "the runner's lap from 3.0s to 5.0s"
    assert named_times(f"What is sought: {query}.", query=query) == ()


def test_a_reply_is_taken_apart():
    reply = read_reply(TARO, duration=8.0)
    assert [t.windows for t in reply.thoughts] == [(), ((1.0, 2.5),), ((3.0, 3.0),), ((2.0, 6.0),)]
    assert reply.thoughts[2].text == "At 3.00s, it goes."
    assert (reply.window, reply.kind, reply.answer) == ((2.0, 6.0), "ok", "2.00s to 6.00s")


def test_sentences_of_one_paragraph_are_thoughts_of_their_own():
    reply = read_reply("<think>It rains at 1.5s. Then, from 2 s to 3 s, it stops!</think> 2.0s to 3.0s", duration=8.0)
    assert [t.windows for t in reply.thoughts] == [((1.5, 1.5),), ((2.0, 3.0),)]


def test_bars_lie_where_their_times_are():
    html = timeline(read_reply(TARO, duration=8.0), truth=(4.0, 8.0))
    assert bars(html, "answer") == [(25.0, 50.0)]
    assert bars(html, "thought") == [(12.5, 18.75), (37.5, 0.0), (25.0, 50.0)]
    assert bars(html, "truth") == [(50.0, 50.0)]
    assert 'data-seek="2.000"' in html
    assert re.findall(r'left:[\d.]+%">(\d+)</span>', html) == ["0", "1", "2", "3", "4", "5", "6", "7", "8"]


def test_times_beyond_the_clip_are_cut_and_those_outside_are_not_drawn():
    text = "<think>From 6.0s to 12.0s it waits. From 20.0s to 30.0s it runs.</think><answer>6.0s to 12.0s</answer>"
    reply = read_reply(text, duration=8.0)
    assert bars(timeline(reply), "thought") == [(75.0, 25.0)]
    assert bars(timeline(reply), "answer") == [(75.0, 25.0)]
    assert NOTES["beyond"] in answer(reply)
    assert 'vt-outside" title="outside the clip">20.00 \u2013 30.00 s<' in reasoning(reply)


def test_overlapping_bars_get_lanes_of_their_own():
    a, b, c, d = (Bar(window, "", "") for window in ((0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (4.0, 4.0)))
    assert pack([a, b, c, d, d]) == [[a, c, d], [b, d]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<think>hm</think><answer>at the end</answer>", "none"),
        ("<think>hm</think><answer>5.0s</answer>", "one_number"),
        ("<think>From 1.0s to 2.0s", "truncated"),
        ("<think>hm</think><answer>10% to 20%</answer>", "wrong_unit"),
        ("<think>hm</think><answer>it begins 3.0s, 5.0s, 7.0s</answer>", "unpaired"),
    ],
)
def test_an_answer_without_a_span_says_so_and_why(text, kind):
    reply = read_reply(text, duration=8.0)
    assert reply.kind == kind
    assert f"No time span in the answer: {WHY_NONE[kind]}." in answer(reply)
    assert bars(timeline(reply), "answer") == []


def test_the_words_of_an_answer_without_a_span_are_shown():
    assert '<p class="vt-words">at &lt;b&gt; the end</p>' in answer(
        read_reply("<think>hm</think><answer>at <b> the end</answer>", duration=8.0)
    )


def test_a_reply_without_reasoning_says_so():
    assert "The reply holds no reasoning." in reasoning(read_reply("2.0s to 3.0s", duration=8.0))


def test_a_reply_that_was_cut_says_so():
    assert "sampling.max_tokens" in answer(read_reply("<think>From 1.0s", duration=8.0, cut=True))
    assert "sampling.max_tokens" not in answer(read_reply("<think>From 1.0s", duration=8.0))


def test_what_the_model_wrote_is_escaped():
    evil = '<img src=x onerror="alert(1)">'
    reply = read_reply(f"<think>{evil} from 1.0s to 2.0s</think><answer>{evil} 1.0s to 2.0s</answer>", duration=8.0)
    for html in (timeline(reply), reasoning(reply), answer(reply), problem(evil)):
        assert "<img" not in html
        assert 'onerror="' not in html
    assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt;" in timeline(reply)  # the tooltip
