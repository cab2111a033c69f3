"""Answers become captions, or are refused with a reason; nothing is repaired by guessing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtgrl.core.types import Caption
from vtgrl.data.caption.parse import Refused, parse_events


def parsed(events: Any, duration: float = 10.0) -> list[tuple[float, float, str]]:
    captions = parse_events(json.dumps({"events": events}), duration=duration).captions
    return [(c.start, c.end, c.text) for c in captions]


def event(start: Any, end: Any, text: Any = "a dog runs.") -> dict[str, Any]:
    return {"start": start, "end": end, "event": text}


ONE = [event(1, 2.5)]
ONE_TEXT = json.dumps({"events": ONE})


@pytest.mark.parametrize(
    "text",
    [
        ONE_TEXT,
        json.dumps(ONE),
        f"```json\n{ONE_TEXT}\n```",
        f"Here it is:\n```\n{ONE_TEXT}\n```\nAll done.",
        f"<think>first {{a}} dog, then ```nothing```</think>\n{ONE_TEXT}",
        f"\n  {ONE_TEXT}  \n",
        json.dumps({"events": ONE, "notes": "none"}),
        json.dumps([{**ONE[0], "confidence": 0.3}]),
    ],
)
def test_forms_that_are_read(text: str) -> None:
    assert parse_events(text, duration=10.0).captions == (Caption(1.0, 2.5, "a dog runs."),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("<think>hm</think>", "empty"),
        ("I see a dog.", "not JSON"),
        (f"Here it is: {ONE_TEXT}", "not JSON"),
        (ONE_TEXT[:-5], "not JSON"),
        (f"```json\n{ONE_TEXT}\n```\n```json\n{ONE_TEXT}\n```", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"events": [{"start": ' + "9" * 5000 + "}]}", "not JSON"),
        ('"events"', "neither"),
        ('{"captions": []}', "neither"),
        ('{"events": {"start": 1}}', "neither"),
        ('{"events": []}', "no event"),
        ('{"events": [[1, 2, "a"]]}', "event 1 is not an object but a list"),
        ('{"events": [{"start": NaN, "end": 2, "event": "a"}]}', "NaN"),
        ('{"events": [{"start": 1, "end": Infinity, "event": "a"}]}', "Infinity"),
        ('{"events": [{"start": 1, "end": 1e999, "event": "a"}]}', "not a finite number"),
        ('{"events": [{"start": 1, "end": 1' + "0" * 400 + ', "event": "a"}]}', "not a finite number"),
    ],
)
def test_forms_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parse_events(text, duration=10.0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event("1", 2), "event 2: \"start\" is not a number of seconds but '1'"),
        (event("0:01", 2), "start"),
        (event(True, 2), "but True"),
        (event(None, 2), "but None"),
        (event(1, [2]), "but a list"),
        (event(1, 2, None), '"event" is not a text but None'),
        ({"start": 1, "event": "a"}, '"end"'),
        (event("1" * 500, 2), r"1\.\.\."),
        (7, "event 2 is not an object but 7"),
    ],
)
def test_one_wrong_type_refuses_the_whole_answer(bad: Any, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parsed([event(0, 1), bad])


def test_times_are_clipped_and_ordered() -> None:
    events = [event(8, 99, "c"), event(-3, 1.23456, "a"), event(1, 2, "b"), event(1, 1.5, "b")]
    assert parsed(events, 9.03) == [(0.0, 1.23, "a"), (1.0, 1.5, "b"), (1.0, 2.0, "b"), (8.0, 9.03, "c")]
    assert parsed([event(0, 50)], 8.0333333) == [(0.0, 8.0333333, "a dog runs.")]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event(12, 13), "outside the clip"),
        (event(10, 13), "outside the clip"),
        (event(-4, 0), "outside the clip"),
        (event(5, 4), "ends before it starts"),
        (event(5, 5), "no length"),
        (event(5.001, 5.002), "no length"),
        (event(9.999, 11), "no length"),
        (event(1, 2, "  \n "), "no text"),
        (event(1, 2, "\ud800\x00"), "no text"),
        (event(1, 2, "a <|im_end|> b"), "control token"),
        (event(1, 2, "a <video> b"), "control token"),
        (event(1, 2, "so </think> it ends"), "control token"),
        (event(0, 1, "the  same\n"), "repeated"),
    ],
)
def test_events_that_cannot_be_used_are_dropped_by_name(bad: Any, reason: str) -> None:
    found = parse_events(json.dumps([event(0, 1, "the same"), bad]), duration=10.0)
    assert found.captions == (Caption(0.0, 1.0, "the same"),)
    assert found.dropped == {reason: 1}


def test_only_unusable_events_are_no_answer() -> None:
    with pytest.raises(Refused, match=r"1 no length, 2 outside the clip.* video of 10\.00 s"):
        parsed([event(12, 13), event(14, 15), event(3, 3)])


def test_texts_become_one_line() -> None:
    assert parsed([event(0, 1, " a\tdog\n\u2028 runs  ")])[0][2] == "a dog runs"
    assert parsed([event(0, 1, "ein Hund läuft 犬 < 3 m")])[0][2] == "ein Hund läuft 犬 < 3 m"
