"""Tokens -> pairs of times. A pair needs a reason (a link, two role words, a bracket); two lone numbers are no pair."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from vtgrl.core.span_tokens import LABELS, UNITS, Token, words

START = words("start starts started starting start_time starttime start_sec begin begins beginning began onset 开始 起始")
END = words(
    "end ends ended ending end_time endtime end_sec finish finishes finished finishing stop stops stopped conclude concludes "
    "concluded until till 结束 终止"
)
OPENERS = words("from between 从 自 由 介于")
BETWEEN = words("between 介于")
AND = words("and & 和 与")
APPROXIMATELY = words("about around approximately approx roughly nearly exactly just circa 约 大约")
FILLERS = (
    frozenset(UNITS)
    | APPROXIMATELY
    | words("the a at up mark point timestamp timestamps time times of is on in t 第 于 在 为 是 时间 的 : = * ` $ \" ' [ ] < >")
)
"""Tokens that may stand between the parts of a span."""

_NOUNS = words("event action clip segment moment video query scene activity 事件")
_LENGTHS = words("for lasts lasting lasted takes took taking")
_FUNCTION_WORDS = words(
    "and or but of in on at during when where while as is are was were the a an this that with for after before by so which he she it "
    "they his her their its there then mark point inclusive respectively 之 之间 内 期 处 左 时"
)
_NOT_COUNTED = _FUNCTION_WORDS | FILLERS | START | END | _NOUNS
_REACH = 6


class Pair(NamedTuple):
    """Two times as written. `unit`: "s", "%", "frame", "" (bare numbers) or "mixed". `strong`: it says that it is a span
    (a unit, a clock form, `from`, `between`, role words or brackets), so it beats a bare "2 to 3"."""

    start: float
    end: float
    unit: str
    strong: bool


class _Link(NamedTuple):
    first: int
    second: int
    text: str
    strong: bool


def find_pairs(tokens: list[Token]) -> list[Pair]:
    """All pairs in reading order; only the strong ones when there is any."""
    times = [i for i, token in enumerate(tokens) if token.kind == "time"]
    found = {link.second: _pair(tokens, link.first, link.second, strong=link.strong) for link in _links(tokens, times)}
    for first, second in _role_pairs(tokens, times):
        found[max(first, second)] = _pair(tokens, first, second, strong=True)
    if not found and len(times) == 2 and _only_times(tokens):
        found[times[1]] = _pair(tokens, times[0], times[1], strong=True)
    pairs = [found[i] for i in sorted(found)]
    return [p for p in pairs if p.strong] or pairs


def _pair(tokens: list[Token], first: int, second: int, *, strong: bool) -> Pair:
    a, b = tokens[first], tokens[second]
    units = {a.unit, b.unit} - {""}
    start = a.value if a.unit else a.value * b.scale
    end = b.value if b.unit else b.value * a.scale
    return Pair(start, end, "mixed" if len(units) > 1 else "".join(units), strong)


def _links(tokens: list[Token], times: list[int]) -> list[_Link]:
    """Neighbouring times that a link joins. In a chain ("8 - 10 - 12") nothing says which two are meant."""
    joined = [link for a, b in pairwise(times) if (link := _link(tokens, a, b)) is not None]
    keep: list[_Link] = []
    for n, link in enumerate(joined):
        before = joined[n - 1] if n and joined[n - 1].second == link.first else None
        after = joined[n + 1] if n + 1 < len(joined) and joined[n + 1].first == link.second else None
        same = any(other is not None and other.text == link.text for other in (before, after))
        if not same and after is None:  # "Clip 1 - 8.5 to 12.4": the later, other link
            keep.append(link)
    return keep


def _link(tokens: list[Token], first: int, second: int) -> _Link | None:
    between = tokens[first + 1 : second]
    if not between or len(between) > _REACH or _counts_things(tokens, first, second) or _is_length(tokens, first):
        return None
    rest = [token for token in between if token.kind != "link" and token.text not in FILLERS]
    links = [token.text for token in between if token.kind == "link"]
    units = bool(tokens[first].unit or tokens[second].unit)
    bracket = _in_brackets(tokens, first, second)
    if links and not rest:
        return _Link(first, second, links[0], units or bracket or _opened(tokens, first))
    if len(rest) == 1 and rest[0].text in AND and (_opened(tokens, first, BETWEEN) or _closed(tokens, second)):
        return _Link(first, second, "and", True)
    if bracket and len(rest) == 1 and rest[0].text in ",;":
        return _Link(first, second, ",", True)
    return None


def _counts_things(tokens: list[Token], first: int, second: int) -> bool:
    """ "2 to 3 cups": bare integers right before a noun count something."""
    bare = tokens[first].bare_integer and tokens[second].bare_integer
    after = tokens[second + 1] if second + 1 < len(tokens) else None
    if not bare or after is None or after.kind != "word":
        return False
    return after.text not in _NOT_COUNTED or after.text in LABELS


def _is_length(tokens: list[Token], first: int) -> bool:
    """ "for 3 to 5 seconds" says how long, not when."""
    if not first:
        return False
    before = tokens[first - 1].text
    return before in _LENGTHS or (before in APPROXIMATELY and tokens[max(0, first - 2)].text in _LENGTHS)


def _opened(tokens: list[Token], first: int, openers: frozenset[str] = OPENERS) -> bool:
    for token in reversed(tokens[max(0, first - _REACH) : first]):
        if token.text in openers:
            return True
        if token.text not in FILLERS and token.text not in _NOUNS:
            return False
    return False


def _closed(tokens: list[Token], second: int) -> bool:
    return second + 1 < len(tokens) and tokens[second + 1].text == "之间"


def _in_brackets(tokens: list[Token], first: int, second: int) -> bool:
    before, after = _beside(tokens, first, -1), _beside(tokens, second, 1)
    return before in ("[", "(", "{") and after in ("]", ")", "}")


def _beside(tokens: list[Token], i: int, step: int) -> str:
    """The neighbour's text, looking past a quote (`["0:08", "0:12"]`)."""
    i += step
    while 0 <= i < len(tokens) and tokens[i].text in "\"'":
        i += step
    return tokens[i].text if 0 <= i < len(tokens) else ""


def _role(tokens: list[Token], i: int) -> str:
    """ "start", "end" or "" by the nearest role word before the time (or right behind it, as Chinese does)."""
    for token in reversed(tokens[max(0, i - _REACH) : i]):
        if token.text in START:
            return "start"
        if token.text in END:
            return "end"
        if token.text not in FILLERS and token.text not in _NOUNS and token.text != "-":
            break
    after = tokens[i + 1].text if i + 1 < len(tokens) else ""
    return {"开始": "start", "起始": "start", "结束": "end", "终止": "end"}.get(after, "")


def _role_pairs(tokens: list[Token], times: list[int]) -> list[tuple[int, int]]:
    """(index of the start, index of the end) for neighbours in the list of times that have a role."""
    roles = [(i, role) for i in times if (role := _role(tokens, i))]
    pairs: list[tuple[int, int]] = []
    n = 0
    while n + 1 < len(roles):
        (i, first), (j, second) = roles[n], roles[n + 1]
        if first == second:
            n += 1
            continue
        pairs.append((i, j) if first == "start" else (j, i))
        n += 2
    return pairs


def _only_times(tokens: list[Token]) -> bool:
    """Nothing but two numbers and punctuation ("8.5, 12.4"): then they are the span."""
    return all(
        token.kind == "time" or token.text in FILLERS or token.text in AND or token.kind == "link" or token.text in ",;\n[](){}."
        for token in tokens
    )
