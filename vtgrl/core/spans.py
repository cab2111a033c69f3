"""The one span parser of vtgrl and the overlap of two windows. Reward and evaluation both read answers with it.

Which text counts: the LAST complete `<answer>` block. Without any answer block: what follows the thinking. A thinking or an
answer that never ends was cut, so its numbers are not an answer (`truncated`). Inside, the last span wins and a second,
different one is flagged (`several`). Numbers of the query, of quoted prose and of counted things are never taken for times.
Official parsers of other projects live in vtgrl/eval/parsers and vtgrl/reward/official.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from vtgrl.core.errors import ConfigError
from vtgrl.core.span_pairs import AND, END, FILLERS, OPENERS, START, find_pairs
from vtgrl.core.span_tokens import GLUED_UNITS, LINKS, Token, normalise, tokenize
from vtgrl.core.types import Window

SpanKind = Literal["ok", "several", "reversed", "zero_length", "beyond", "none", "one_number", "unpaired", "wrong_unit", "truncated"]
SpanUnit = Literal["seconds", "percent", "frames"]

WINDOW_KINDS: tuple[SpanKind, ...] = ("ok", "several", "reversed", "zero_length", "beyond")
"""Kinds that come with a window."""

EDGE_SECONDS = 0.02
"""A window that leaves the clip by less is float noise, not `beyond` (annotations and decoders differ by this much)."""

_WRITTEN_UNIT: dict[SpanUnit, str] = {"seconds": "s", "percent": "%", "frames": "frame"}
_TAG = re.compile(r"<(?:(answer)|(/answer)|(think)|(/think))>", re.IGNORECASE)
_OPEN_ANSWER, _CLOSE_ANSWER, _OPEN_THINK = 1, 2, 3  # groups of _TAG
_OTHER_TAG = re.compile(r"</?[a-z_]{1,32}>")
_QUOTED = re.compile(r"\"[^\"\n]*\"|(?<![a-z0-9])'[^'\n]*'(?![a-z0-9])")
_QUOTED_WORD = re.compile(r"[a-z_]+")
_DIGIT = re.compile(r"[0-9]")
_MAYBE_DIGIT = re.compile(r"[0-9]|[^\x00-\x7f]")
_SECOND = r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)( ?s| ?seconds)?"
_PLAIN_SPAN = re.compile(rf"\s*(?:from )?{_SECOND}(?: to | ?- ?| ?~ ?){_SECOND}\.?\s*")
"""A region that is one span in seconds and nothing else, as most answers are."""
_SPAN_WORDS = FILLERS | OPENERS | START | END | AND | LINKS | frozenset(GLUED_UNITS)


class SpanResult(NamedTuple):
    """What the parser read.

    window: (start, end) in seconds, start <= end, clamped to [0, duration] when the duration is known; None without a span.
    kind: the first that holds of `several`, `reversed`, `zero_length`, `beyond`, `ok`; or why there is no window:
        `none` (no time), `one_number`, `unpaired` (times that nothing joins), `wrong_unit`, `truncated`.
    swapped: the text had the end first. flags: everything that holds, in the order above (empty for `ok`).
    """

    window: Window | None
    kind: SpanKind
    swapped: bool = False
    flags: tuple[SpanKind, ...] = ()


def parse_span(
    text: str, *, duration: float | None = None, query: str = "", unit: SpanUnit = "seconds", fps: float | None = None
) -> SpanResult:
    """Read the span that an answer states.

    Args:
        duration: seconds of the clip; None or <= 0 when unknown (then nothing is clamped).
        query: the question; its numbers are not times.
        unit: what the model was told to answer in. Percent needs `duration`, frames need `fps`; a span that states another
            unit is `wrong_unit`.

    Example: parse_span("<answer>8.50s to 12.40s</answer>", duration=30).window == (8.5, 12.4)

    Raises:
        ConfigError: `percent` without a duration, `frames` without a frame rate.
    """
    scale = _scale(unit, duration=duration, fps=fps)
    region, blocks = _answer_region(text)
    if region is None:
        return SpanResult(None, "truncated")
    plain = _PLAIN_SPAN.fullmatch(region) if unit == "seconds" and not _may_hold_number(query) else None
    if plain:  # what the steps below come to, at a tenth of their cost
        return _result((float(plain[1]), float(plain[3])), several=blocks > 1, duration=duration)
    return _read_region(region, several=blocks > 1, query=query, unit=unit, scale=scale, duration=duration)


def _read_region(region: str, *, several: bool, query: str, unit: SpanUnit, scale: float, duration: float | None) -> SpanResult:
    text = normalise(region)
    if not _DIGIT.search(text):
        return SpanResult(None, "none")
    tokens = tokenize(_without_foreign_numbers(text, query))
    pairs = find_pairs(tokens)
    usable = [pair for pair in pairs if pair.unit in ("", _WRITTEN_UNIT[unit])]
    if not usable:
        return SpanResult(None, "wrong_unit" if pairs else _why_none(tokens))
    windows = [(pair.start * scale, pair.end * scale) for pair in usable]
    return _result(windows[-1], several=several or len(set(windows)) > 1, duration=duration)


def iou(a: Window, b: Window) -> float:
    """Intersection over union of two windows; 0 when either is empty, reversed or not finite."""
    if not (a[0] < a[1] and b[0] < b[1]):
        return 0.0
    overlap = min(a[1], b[1]) - max(a[0], b[0])
    if not overlap > 0 or math.isinf(overlap):
        return 0.0
    return overlap / (max(a[1], b[1]) - min(a[0], b[0]))


def hull_iou(a: Window, b: Window) -> float:
    """Overlap over (largest end - smallest start), as most published evaluators compute it; 0 when that is not positive.

    Equal to `iou` for proper windows. Reversed windows are taken as they are.
    """
    hull = max(a[1], b[1]) - min(a[0], b[0])
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0])) / hull if hull > 0 else 0.0


def best_iou(window: Window | None, windows: Iterable[Window]) -> float:
    """Largest `iou` with any of the true windows; 0 without a window."""
    return max((iou(window, truth) for truth in windows), default=0.0) if window is not None else 0.0


def clamp_window(window: Window, duration: float) -> Window:
    """Both ends moved into [0, duration]."""
    return min(max(window[0], 0.0), float(duration)), min(max(window[1], 0.0), float(duration))


def _scale(unit: SpanUnit, *, duration: float | None, fps: float | None) -> float:
    """Seconds that one stated unit is worth."""
    if unit == "percent":
        if duration is None or not duration > 0:
            raise ConfigError("unit 'percent' needs the clip's duration")
        return duration / 100.0
    if unit == "frames":
        if fps is None or not fps > 0:
            raise ConfigError("unit 'frames' needs a frame rate above 0 (fps=)")
        return 1.0 / fps
    return 1.0


def _answer_region(text: str) -> tuple[str | None, int]:
    """(text that may hold the answer or None when it was cut, number of complete answer blocks)."""
    blocks: list[tuple[int, int]] = []
    answer_open = think_open = False
    opened = after_think = 0
    for tag in _TAG.finditer(text):
        which = tag.lastindex
        if which == _OPEN_ANSWER:
            answer_open, opened = True, tag.end()
        elif which == _CLOSE_ANSWER:
            if answer_open:
                blocks.append((opened, tag.start()))
            answer_open = False
        else:
            think_open = which == _OPEN_THINK
            after_think = tag.end()
    if blocks:
        return text[slice(*blocks[-1])], len(blocks)
    return (None if answer_open or think_open else text[after_think:]), 0


def _without_foreign_numbers(text: str, query: str) -> str:
    """Blank the query and quoted prose; quoted spans and JSON strings stay."""
    if _may_hold_number(query):
        query = normalise(query).strip(" .")
        if any(c.isdigit() for c in query) and not _is_span_text(query):
            text = re.sub(r"\s+".join(map(re.escape, query.split())), " ; ", text)
    if "<" in text:
        text = _OTHER_TAG.sub(" ; ", text)
    return _QUOTED.sub(lambda m: m.group() if _is_span_text(m.group()) else " ; ", text) if "'" in text or '"' in text else text


def _may_hold_number(query: str) -> bool:
    """A query of plain letters has nothing to blank; digits of other scripts are looked at closer."""
    return _MAYBE_DIGIT.search(query) is not None


def _is_span_text(quoted: str) -> bool:
    return all(word in _SPAN_WORDS for word in _QUOTED_WORD.findall(quoted))


def _why_none(tokens: list[Token]) -> SpanKind:
    count = sum(token.kind == "time" for token in tokens)
    return "none" if count == 0 else "one_number" if count == 1 else "unpaired"


def _result(window: Window, *, several: bool, duration: float | None) -> SpanResult:
    flags: list[SpanKind] = ["several"] if several else []
    start, end = window
    swapped = start > end
    if swapped:
        start, end = end, start
        flags.append("reversed")
    if start == end:
        flags.append("zero_length")
    if start < -EDGE_SECONDS or (duration is not None and 0 < duration < end - EDGE_SECONDS):
        flags.append("beyond")
    if duration is not None and duration > 0 and not 0.0 <= start <= end <= duration:
        start, end = clamp_window((start, end), duration)
    return SpanResult((start, end), flags[0] if flags else "ok", swapped, tuple(flags))
