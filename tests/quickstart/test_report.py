"""The page: self-contained, escaped, true to its records."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from vtgrl.quickstart.frames import data_uri, strip
from vtgrl.quickstart.report import Answer, Bar, Card, Report, Score, Stage, bar, clock, render, time_ticks
from vtgrl.quickstart.svg import Chart, Series

VOID = {"meta", "img", "br", "hr", "link", "input", "circle", "line", "path"}


class Balance(HTMLParser):
    """Every opened element is closed in order; keeps what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    frame = np.full((56, 56, 3), 200, np.uint8)
    answers = (Answer("SFT", "<answer>nothing</answer>", None, 0.0), Answer("GRPO", "1.00s to 3.00s", (1.0, 3.0), 0.625))
    card = Card("clip-7", "When is the <red> square visible?", 8.0, ((1.0, 2.0), (6.0, 7.0)), answers, ((0.5, data_uri(frame)),))
    chart = Chart("Loss & co", "falls", (Series("loss", ((1.0, 2.0), (2.0, 1.0))),))
    empty = Chart("Never drawn", "", (Series("none", ()),))
    scores = (Score("mIoU", 0.41, 0.53, 0.02, 0.03), Score("answers without a span", 3, 0, digits=0, lower=True))
    stages = (Stage("SFT", "vtgrl train sft --recipe x 'a b'", 125.0, "done"),)
    return render(Report("Title", "Lead", scores, (chart, empty), (card,), stages, (("seed", "0"),)))


def test_the_page_is_balanced_and_loads_nothing_from_elsewhere(page: str) -> None:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.loads
    assert all(load.startswith("data:image/jpeg;base64,") for load in parser.loads)
    assert "http" not in page.replace("http-equiv", "")


def test_text_from_data_cannot_become_markup(page: str) -> None:
    assert "<red>" not in page
    assert "&lt;red&gt;" in page
    assert "Loss &amp; co" in page


def test_scores_gains_and_failures_are_shown(page: str) -> None:
    for text in ("0.410", "0.530", "+0.120", "± 0.020".replace("±", "&plusmn;"), "-3", "no span", "0.62", "2 min 05 s"):
        assert text in page, text
    assert "Never drawn" not in page


def test_fewer_failures_are_an_improvement() -> None:
    assert Score("bad", 3, 0, lower=True).verdict == "up"
    assert Score("good", 0.5, 0.4).verdict == "down"
    assert Score("same", 0.5, 0.5).verdict == "same"


def test_bars_lie_under_the_frames() -> None:
    assert bar((2.0, 4.0), 8.0) == Bar(25.0, 25.0, "2.00-4.00 s")
    assert bar((-1.0, 99.0), 8.0).left == 0.0
    assert bar((-1.0, 99.0), 8.0).width == 100.0
    assert bar((4.0, 4.0), 8.0).width > 0, "a span without length is still seen"


@pytest.mark.parametrize("duration", [4.0, 8.0, 31.0, 150.0, 7200.0])
def test_time_axis_has_few_round_labels(duration: float) -> None:
    marks = time_ticks(duration)
    assert 2 <= len(marks) <= 9
    assert all(0 <= left <= 100 for left, _ in marks)
    assert all(float(label.split()[0]) / duration * 100 == pytest.approx(left) for left, label in marks)


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (59.6, "1 min 00 s"), (65, "1 min 05 s")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_each_cell_of_a_strip_shows_its_own_time() -> None:
    times = tuple(i / 2 for i in range(16))
    frames = np.stack([np.full((20, 20, 3), 15 * i, np.uint8) for i in range(16)])
    cells = strip(frames, times, duration=8.0, cells=8)
    assert [t for t, _ in cells] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5]
    for t, uri in cells:
        image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        assert np.asarray(image)[10, 10, 0] == pytest.approx(15 * 2 * t, abs=3)


def test_a_strip_of_a_short_clip_repeats_no_frame() -> None:
    assert len(strip(np.zeros((2, 8, 8, 3), np.uint8), (0.0, 0.5), duration=1.0)) == 2


def test_no_rule_of_the_style_sheet_is_broken(page: str) -> None:
    css = re.search(r"<style>(.*)</style>", page, re.S)
    assert css is not None
    assert css[1].count("{") == css[1].count("}")
