"""Line charts as inline SVG: no script, no network, colours from the page's CSS variables (so light and dark both work)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 236
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 34
MAX_POINTS = 240
"""A longer curve is drawn through window means: a pixel cannot show more."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One curve. `smooth`: width of the running mean drawn boldly over the faint raw curve (0: draw the raw curve boldly)."""

    name: str
    points: tuple[Point, ...]
    colour: str = "a"
    smooth: int = 0


@dataclass(frozen=True)
class Chart:
    """One small plot. `note` is the sentence under the title."""

    title: str
    note: str
    series: tuple[Series, ...]
    x_label: str = "step"
    from_zero: bool = False


def ticks(low: float, high: float, *, about: int = 4) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) inside [low, high]."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Short and without noise: 0.25, 300, 2e-07."""
    return "0" if abs(value) < 1e-15 else f"{value:.3g}"


def running_mean(points: Sequence[Point], width: int) -> list[Point]:
    """Mean of the last `width` values, at each point."""
    out = []
    for i, (x, _) in enumerate(points):
        window = [y for _, y in points[max(0, i - width + 1) : i + 1]]
        out.append((x, sum(window) / len(window)))
    return out


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points: means of equal runs of points."""
    size = math.ceil(len(points) / limit)
    runs = [points[i : i + size] for i in range(0, len(points), size)] if size > 1 else [[p] for p in points]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def finite(points: Sequence[Point]) -> list[Point]:
    """Points that can be drawn."""
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


@dataclass(frozen=True)
class Frame:
    """Maps data to pixels."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        """Pixel column."""
        return LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixel row; larger values are higher."""
        return HEIGHT - BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def path(self, points: Sequence[Point]) -> str:
        """The `d` of an SVG path through the points."""
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)


def frame_of(chart: Chart) -> Frame:
    """Axes that hold every curve, with a little air; a constant curve gets a band around it."""
    points = [p for s in chart.series for p in finite(s.points)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    if chart.from_zero:
        low = min(low, 0.0)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return Frame(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, low if chart.from_zero and low == 0.0 else low - air, high + air)


def _axes(frame: Frame, label: str) -> list[str]:
    out = []
    for value in ticks(frame.y0, frame.y1):
        y = frame.y(value)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">{number(value)}</text>')
    for value in ticks(frame.x0, frame.x1, about=5):
        out.append(f'<text x="{frame.x(value):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{number(value)}</text>')
    out.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(label)}</text>')
    return out


def _curve(frame: Frame, series: Series) -> list[str]:
    raw = finite(series.points)
    if not raw:
        return []
    bold = thin(running_mean(raw, series.smooth)) if series.smooth > 1 else thin(raw)
    last_x, last_y = bold[-1]
    out = []
    if series.smooth > 1:
        out.append(f'<path class="faint {series.colour}" d="{frame.path(thin(raw))}"/>')
    out.append(f'<path class="line {series.colour}" d="{frame.path(bold)}"/>')
    tip = escape(f"{series.name}: {number(last_y)} at {number(last_x)}")
    out.append(
        f'<circle class="dot {series.colour}" cx="{frame.x(last_x):.1f}" cy="{frame.y(last_y):.1f}" r="3.5"><title>{tip}</title></circle>'
    )
    return out


def draw(chart: Chart) -> str:
    """The chart as an <svg> element; an empty string when no curve has a finite point."""
    if not any(finite(s.points) for s in chart.series):
        return ""
    frame = frame_of(chart)
    parts = _axes(frame, chart.x_label) + [piece for s in chart.series for piece in _curve(frame, s)]
    summary = escape(
        f"{chart.title}: " + ", ".join(f"{s.name} ends at {number(finite(s.points)[-1][1])}" for s in chart.series if finite(s.points))
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{summary}">{"".join(parts)}</svg>'
