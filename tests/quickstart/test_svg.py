"""Charts: ticks are round, curves end where the data end, nothing that cannot be drawn breaks the page."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from vtgrl.quickstart.svg import HEIGHT, LEFT, MAX_POINTS, RIGHT, WIDTH, Chart, Series, draw, finite, frame_of, running_mean, thin, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.0, 1.0, [0.0, 0.5, 1.0]), (0, 400, [0, 100, 200, 300, 400]), (2.1e-7, 3.9e-7, [2.5e-7, 3e-7, 3.5e-7]), (5.0, 5.0, [5.0])],
)
def test_ticks_are_round_and_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_running_mean_looks_back_only() -> None:
    assert running_mean([(1, 2.0), (2, 4.0), (3, 9.0)], 2) == [(1, 2.0), (2, 3.0), (3, 6.5)]


def test_thinning_keeps_the_mean_and_the_limit() -> None:
    points = [(float(i), math.sin(i)) for i in range(1000)]
    few = thin(points)
    assert len(few) <= MAX_POINTS
    assert sum(y for _, y in few) / len(few) == pytest.approx(sum(y for _, y in points) / 1000, abs=1e-9)
    assert thin(points[:10]) == points[:10]


def test_a_chart_is_well_formed_and_stays_in_its_box() -> None:
    points = tuple((float(i), 1.0 / i) for i in range(1, 50))
    root = ET.fromstring(draw(Chart("a < b", "note", (Series("x & y", points, "a", smooth=5),), from_zero=True)))
    curve = next(e for e in root if e.get("class") == "line a").get("d") or ""
    pixels = [tuple(map(float, pair.split())) for pair in re.split("[ML]", curve)[1:]]
    assert all(LEFT <= x <= WIDTH - RIGHT and 0 <= y <= HEIGHT for x, y in pixels)
    assert pixels[0][1] < pixels[-1][1], "a falling curve goes down the page"


def test_gaps_and_infinities_are_left_out() -> None:
    points = ((0.0, 1.0), (1.0, math.nan), (2.0, math.inf), (3.0, 2.0))
    assert finite(points) == [(0.0, 1.0), (3.0, 2.0)]
    assert "nan" not in draw(Chart("t", "n", (Series("s", points),)))


def test_a_chart_without_points_is_not_drawn() -> None:
    assert draw(Chart("t", "n", (Series("s", ()), Series("u", ((1.0, math.nan),))))) == ""


def test_a_constant_curve_has_room_around_it() -> None:
    frame = frame_of(Chart("t", "n", (Series("s", ((1.0, 3.0), (2.0, 3.0))),)))
    assert frame.y0 < 3.0 < frame.y1
