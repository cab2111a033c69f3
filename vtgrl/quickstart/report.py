"""One self-contained HTML page from plain records: no file is read, nothing is fetched when the page is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from vtgrl.core.types import Window
from vtgrl.quickstart.svg import Chart, draw


@dataclass(frozen=True)
class Stage:
    """One command of the run and how long it took. `done`: what it left, in a few words."""

    name: str
    command: str
    seconds: float
    done: str


@dataclass(frozen=True)
class Score:
    """One row of the table: values before and after, and the standard error of each (0: none). `lower`: less is better."""

    name: str
    before: float
    after: float
    before_se: float = 0.0
    after_se: float = 0.0
    digits: int = 3
    lower: bool = False

    @property
    def gain(self) -> float:
        """after - before."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """up: better; down: worse; same."""
        gain = -self.gain if self.lower else self.gain
        return "up" if gain > 0 else "down" if gain < 0 else "same"


@dataclass(frozen=True)
class Answer:
    """What one model said about one clip. `window` is None when no span could be read from `text`."""

    who: str
    text: str
    window: Window | None
    iou: float


@dataclass(frozen=True)
class Card:
    """One held-out clip. `frames`: (seconds, data URI), in order of time."""

    id: str
    query: str
    duration: float
    truth: tuple[Window, ...]
    answers: tuple[Answer, ...]
    frames: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Report:
    """The whole page. `lead`: one or two sentences; `facts`: (name, value) pairs about the run."""

    title: str
    lead: str
    scores: tuple[Score, ...]
    charts: tuple[Chart, ...]
    cards: tuple[Card, ...]
    stages: tuple[Stage, ...]
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Bar:
    """A span as per cent of the clip's length."""

    left: float
    width: float
    label: str


def bar(window: Window, duration: float) -> Bar:
    """Where a span lies under the strip of frames, clipped to the clip."""
    start, end = (min(max(t, 0.0), duration) for t in window)
    return Bar(100 * start / duration, max(100 * (end - start) / duration, 0.6), f"{window[0]:.2f}-{window[1]:.2f} s")


def clock(seconds: float) -> str:
    """3 min 05 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _svg(chart: Chart) -> Markup:
    """Drawn charts are markup: `draw` escapes every text it is given."""
    return Markup(draw(chart))


def time_ticks(duration: float) -> Sequence[tuple[float, str]]:
    """(per cent, label) of whole seconds along a clip: at most nine."""
    every = next(s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600) if duration / s <= 8.5 or s == 3600)
    return [(100 * t / duration, f"{t} s") for t in range(0, int(duration) + 1, every)]


def render(report: Report) -> str:
    """The page as one HTML document."""
    environment = Environment(
        loader=PackageLoader("vtgrl.quickstart", "."),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"bar": bar, "svg": _svg, "time_ticks": time_ticks}
    environment.filters["clock"] = clock
    charts = [c for c in report.charts if draw(c)]
    return environment.get_template("page.html").render(report=report, charts=charts, hero=report.scores[0])
