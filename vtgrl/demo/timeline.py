"""A reply as HTML: bars on the clip's time axis, the thoughts with their times, the answer. Pure; every text is escaped.

Whatever carries `data-seek` is a button that moves the player there (page.js).
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from vtgrl.core.spans import SpanKind, clamp_window
from vtgrl.core.types import Window
from vtgrl.demo.reply import Reply, Thought
from vtgrl.quickstart.svg import number, ticks

WHY_NONE: dict[SpanKind, str] = {
    "none": "it names no time",
    "one_number": "it names one time only",
    "unpaired": "it names times, but nothing makes a span of them",
    "wrong_unit": "its times are not in seconds",
    "truncated": "it ends before its answer does",
}
NOTES: dict[SpanKind, str] = {
    "several": "The reply names several spans; the last one counts.",
    "reversed": "The reply names the end first; the two are swapped here.",
    "zero_length": "Start and end are the same.",
    "beyond": "The reply goes beyond the clip; the span is cut to it.",
}
CUT = "The reply was cut at the limit of tokens (sampling.max_tokens)."


class Bar(NamedTuple):
    """`window`: inside the clip. `label` stands in the bar (a bar is often too short for more than a number), `title` is its tooltip."""

    window: Window
    label: str
    title: str


def timeline(reply: Reply, *, truth: Window | None = None) -> str:
    """Rows of bars over one time axis: the answer, the times of the reasoning, the true window when it is known."""
    rows = [_one("Answer", reply.window, duration=reply.duration)]
    for n, lane in enumerate(pack(_thought_bars(reply))):
        rows.append(_row("" if n else "Reasoning", lane, kind="thought", duration=reply.duration))
    if truth is not None:
        rows.append(_one("Truth", truth, duration=reply.duration))
    summary = f"answer {span_text(reply.window)}" if reply.window else "no time span in the answer"
    head = '<div class="vt-over"><div class="vt-head"></div></div>'
    attributes = f'data-duration="{reply.duration:.3f}" aria-label="{summary}, clip of {reply.duration:.2f} s"'
    return f'<div class="vt-timeline" role="group" {attributes}>{"".join(rows)}{_axis(reply.duration)}{head}</div>'


def reasoning(reply: Reply) -> str:
    """The thoughts one below the other; those with times have a number (that of their bars) and buttons."""
    if not reply.thoughts:
        return '<p class="vt-soft">The reply holds no reasoning.</p>'
    numbers = _numbers(reply)
    lines = [_line(thought, numbers.get(n), duration=reply.duration) for n, thought in enumerate(reply.thoughts)]
    return f'<div class="vt-lines">{"".join(lines)}</div>'


def answer(reply: Reply) -> str:
    """The span in large letters, or that there is none, why, and the words that stand there; then remarks and the whole reply."""
    if reply.window is None:
        words = f'<p class="vt-words">{escape(reply.answer)}</p>' if reply.answer else ""
        head = f'<p class="vt-none">No time span in the answer: {WHY_NONE[reply.kind]}.</p>{words}'
    else:
        head = f'<p class="vt-span">{_seek(reply.window[0], span_text(reply.window), css="vt-big")}</p>'
    notes = [NOTES[flag] for flag in reply.flags] + [CUT] * reply.cut
    remarks = "".join(f'<p class="vt-soft">{note}</p>' for note in notes)
    whole = f"<details><summary>Reply as written</summary><pre>{escape(reply.text)}</pre></details>"
    return f'<div class="vt-answer-card">{head}{remarks}{whole}</div>'


def problem(message: str) -> str:
    """One line that says what went wrong."""
    return f'<p class="vt-problem" role="alert">{escape(message)}</p>'


def pack(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Bars in as few lanes as order allows: each goes into the first lane whose last bar ends before it begins."""
    lanes: list[list[Bar]] = []
    for bar in bars:
        free = next((lane for lane in lanes if lane[-1].window[1] <= bar.window[0] and lane[-1].window != bar.window), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes


def span_text(window: Window) -> str:
    """(2.0, 4.5) -> "2.00 - 4.50 s" with an en dash; a moment has one number."""
    start, end = window
    return f"{start:.2f} s" if start == end else f"{start:.2f} \u2013 {end:.2f} s"


def _thought_bars(reply: Reply) -> list[Bar]:
    """Bars of the times that lie in the clip, in the order of the thoughts."""
    return [
        Bar(clamp_window(window, reply.duration), str(label), f"{label}: {span_text(window)}: {reply.thoughts[n].text}")
        for n, label in _numbers(reply).items()
        for window in reply.thoughts[n].windows
        if _in_clip(window, reply.duration)
    ]


def _numbers(reply: Reply) -> dict[int, int]:
    """Index of a thought with times -> its number, from 1."""
    timed = [n for n, thought in enumerate(reply.thoughts) if thought.windows]
    return {n: label for label, n in enumerate(timed, 1)}


def _in_clip(window: Window, duration: float) -> bool:
    return window[0] <= duration and window[1] >= 0.0


def _one(name: str, window: Window | None, *, duration: float) -> str:
    """A row with one window, which is written behind it."""
    value = "none" if window is None else span_text(window)
    bars = [] if window is None else [Bar(window, "", f"{name}: {value}")]
    return _row(name, bars, kind=name.lower(), duration=duration, value=value)


def _row(name: str, bars: list[Bar], *, kind: str, duration: float, value: str = "") -> str:
    drawn = "".join(_bar(bar, kind=kind, duration=duration) for bar in bars)
    return _cells(name, f'<div class="vt-track vt-track-{kind}">{drawn}</div>', value)


def _cells(name: str, middle: str, value: str) -> str:
    return f'<div class="vt-row"><span class="vt-name">{name}</span>{middle}<span class="vt-value">{value}</span></div>'


def _bar(bar: Bar, *, kind: str, duration: float) -> str:
    start, end = bar.window
    place = f"left:{_percent(start, duration)};width:{_percent(end - start, duration)}"
    inside = f"<span>{escape(bar.label)}</span>"
    return f'<button class="vt-bar vt-{kind}" style="{place}" data-seek="{start:.3f}" title="{escape(bar.title)}">{inside}</button>'


def _axis(duration: float) -> str:
    marks = "".join(f'<span style="left:{_percent(t, duration)}">{number(t)}</span>' for t in ticks(0.0, duration, about=8))
    return _cells("", f'<div class="vt-axis">{marks}</div>', "seconds")


def _percent(time: float, duration: float) -> str:
    return f"{100.0 * time / duration:.3f}%"


def _line(thought: Thought, label: int | None, *, duration: float) -> str:
    times = "".join(_chip(window, duration) for window in thought.windows)
    badge = f'<span class="vt-badge">{label}</span>' if label else '<span class="vt-badge vt-empty"></span>'
    return f'<div class="vt-line">{badge}<div>{times}{escape(thought.text)}</div></div>'


def _chip(window: Window, duration: float) -> str:
    if not _in_clip(window, duration):
        return f'<span class="vt-chip vt-outside" title="outside the clip">{span_text(window)}</span> '
    return _seek(max(window[0], 0.0), span_text(window), css="vt-chip") + " "


def _seek(time: float, label: str, *, css: str) -> str:
    return f'<button class="{css}" data-seek="{time:.3f}" title="show in the player">{label}</button>'
