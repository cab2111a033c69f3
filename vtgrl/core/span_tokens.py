"""Text -> tokens for the span parser: times with their units, words, links and punctuation. Pure, linear in the text.

A numeric token is read whole or not at all: `-5.00`, `.50`, `1e1`, `1,000.5`, `8,5` and `1:02:03.5` are numbers, while
`1.2.50`, `16:9`, `2nd` and `mp4` are not (TaRO defect T11: the published parsers read pieces of them).
"""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple


def words(text: str) -> frozenset[str]:
    """A vocabulary written as one string."""
    return frozenset(text.split())


TokenKind = Literal["time", "word", "link", "punct", "other"]

UNITS: dict[str, float] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒", "秒钟"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分", "分钟"), 60.0),
    **dict.fromkeys(("hr", "hrs", "hour", "hours", "小时"), 3600.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds", "毫秒"), 0.001),
}
"""Unit word -> seconds."""

GLUED_UNITS: dict[str, float] = {**UNITS, "m": 60.0, "h": 3600.0}
"""Units right behind the number: there, `5m` is minutes; `5 m` could be metres."""

LINKS = frozenset({"to", "until", "till", "through", "thru", "->", "-", "~", "..", "到", "至"})
LABELS = words("event events person persons people step steps scene scenes shot shots option options part parts figure number no #")
"""Nouns that are counted: a bare integer behind one is its name, not a time ("Event 1: ...", "person 1")."""

_CHARS = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),  # hyphens, en and em dash, minus
        **dict.fromkeys("\uff5e\u301c\u223c\u02dc", "~"),
        **dict.fromkeys("\u2192\u21d2\u2794\u279c", " -> "),
        **dict.fromkeys("\u201c\u201d\u201e\u300c\u300d\u300e\u300f", '"'),
        **dict.fromkeys("\u2018\u2019", "'"),
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},  # full-width digits and signs
        **{chr(0xFF00 + ord(sign) - 0x20): sign for sign in ".:;%()"},
        **dict.fromkeys("\uff0c\u3001", ", "),
        "\u3002": ";",
        "\u2026": "...",
    }
)
_SPECIAL = re.compile(r"<\|[^<>|]*\|>")
_SCAN = re.compile(
    r"(?P<word>[a-z_][a-z0-9_]*)"
    r"|(?P<hms>[0-9]{1,3}h(?:[0-9]{1,2}m)?(?:[0-9]{1,2}(?:\.[0-9]{1,6})?s)?(?![a-z0-9.])|[0-9]{1,3}m[0-9]{1,2}(?:\.[0-9]{1,6})?s(?![a-z0-9.]))"
    r"|(?P<num>(?:(?<![a-z0-9_.])\.)?[0-9]+(?:[.:,][0-9]+)*(?:e[+-]?[0-9]+)?)"
    r"|(?P<cjk>毫秒|秒钟|分钟|小时|开始|起始|结束|终止|之间|大约|介于|时间|[\u4e00-\u9fff])"
    r"|(?P<link>[-=]{1,3}>|\.{2,}|[-~])"
    r"|(?P<punct>\n|\S)"
)
_CLOCK = re.compile(r"(?:(\d{1,2}):([0-5]\d)|(\d{1,3})):([0-5]\d(?:[.,]\d{1,9})?)")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"\d+,\d+")
_PLAIN = re.compile(r"\d*\.?\d+(?:e[+-]?\d+)?")
_HMS_PART = re.compile(r"([\d.]+)([hms])")
_LONGEST_NUMBER = 32


class Token(NamedTuple):
    """`value`: seconds (or percent, or a frame index, by `unit`), meaningful for times only.

    `unit`: "" bare number, "s" an explicit unit of time or a clock form, "%" percent, "frame" frame index. `scale` is what
    `value` was multiplied by; a bare neighbour inherits it ("1 to 2 minutes"). `start`/`end`: place in the text.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    value: float = math.nan
    unit: str = ""
    scale: float = 1.0

    @property
    def bare_integer(self) -> bool:
        """A number without unit, fraction or clock form: it may count things instead of seconds."""
        return self.kind == "time" and self.unit == "" and self.text.lstrip("-").isdigit()


def normalise(text: str) -> str:
    """Lower case, one kind of dash, quote and digit, without `<|special|>` tokens."""
    if not text.isascii():
        text = text.translate(_CHARS)
    return (_SPECIAL.sub(" ", text) if "<|" in text else text).lower()


def read_number(text: str) -> tuple[float, str] | None:
    """`("8,5")` -> (8.5, ""); `("1:05")` -> (65.0, "s"); None when the whole text is not one number."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if ":" in text:
        return _read_clock(text)
    if "," in text and _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    elif "," in text and _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
    if not _PLAIN.fullmatch(text):
        return None
    value = float(text)
    return (value, "") if math.isfinite(value) else None


def _read_clock(text: str) -> tuple[float, str] | None:
    clock = _CLOCK.fullmatch(text)
    if not clock:
        return None
    hours, minutes, only_minutes, seconds = clock.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 if hours else int(only_minutes) * 60
    return whole + float(seconds.replace(",", ".")), "s"


def tokenize(text: str) -> list[Token]:
    """Tokens of a normalised text, with signs, units, compound times ("1 min 5 s") and frame words folded in."""
    tokens = _scan(text)
    if "," in text:
        tokens = _split_commas(tokens)
    if "-" in text:
        tokens = _fold_signs(tokens)
    return _fold_compounds(_fold_units(tokens))


def _scan(text: str) -> list[Token]:
    tokens: list[Token] = []
    for match in _SCAN.finditer(text):
        piece, group = match[0], match.lastgroup
        start, end = match.span()
        if group == "num":
            tokens.append(_number(piece, start, end))
        elif group == "hms":
            tokens.append(Token("time", piece, start, end, sum(float(n) * GLUED_UNITS[u] for n, u in _HMS_PART.findall(piece)), "s"))
        elif group == "link" or piece in LINKS:
            tokens.append(Token("link", "->" if piece[-1] == ">" else ".." if piece[0] == "." else piece, start, end))
        else:
            tokens.append(Token("punct" if group == "punct" else "word", piece, start, end))
    return tokens


def _number(text: str, start: int, end: int) -> Token:
    read = read_number(text)
    return Token("other", text, start, end) if read is None else Token("time", text, start, end, *read)


def _split_commas(tokens: list[Token]) -> list[Token]:
    """`[8,12]` and `8.5,12.4` hold two numbers; `8,5` outside brackets is one with a decimal comma."""
    out: list[Token] = []
    for i, token in enumerate(tokens):
        if "," not in token.text or token.kind not in ("time", "other"):
            out.append(token)
            continue
        parts = token.text.split(",")
        if not (_bracketed(tokens, i) or _two_decimals(token, parts)):
            out.append(token)
            continue
        at = token.start
        for n, part in enumerate(parts):
            if n:
                out.append(Token("punct", ",", at - 1, at))
            out.append(_number(part, at, at + len(part)))
            at += len(part) + 1
    return out


def _bracketed(tokens: list[Token], i: int) -> bool:
    return 0 < i < len(tokens) - 1 and tokens[i - 1].text in "[({" and tokens[i + 1].text in "])}"


def _two_decimals(token: Token, parts: list[str]) -> bool:
    return token.kind == "other" and len(parts) == 2 and all(_PLAIN.fullmatch(p) for p in parts)


def _fold_signs(tokens: list[Token]) -> list[Token]:
    """`-5.00` is a negative number unless the dash stands behind a number or a word ("8.5 -12.4", "start-8.5")."""
    out: list[Token] = []
    for token in tokens:
        if token.kind == "time" and out and out[-1].text == "-" and out[-1].end == token.start and _may_sign(out):
            token = token._replace(text="-" + token.text, start=token.start - 1, value=-token.value)
            out.pop()
        out.append(token)
    return out


def _may_sign(tokens: list[Token]) -> bool:
    """Whether the dash at the end of `tokens` can be a sign."""
    if len(tokens) < 2:
        return True
    dash, before = tokens[-1], tokens[-2]
    joins_number = before.kind in ("time", "other") or before.text in GLUED_UNITS
    return not joins_number and not (before.kind == "word" and before.end == dash.start)


def _fold_units(tokens: list[Token]) -> list[Token]:
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if token.kind not in ("time", "other") or i == len(tokens):
            out.append(_after_noun(token, out) if token.kind == "time" else token)
            continue
        unit = tokens[i]
        if unit.text == "-" and unit.start == token.end and i + 1 < len(tokens) and tokens[i + 1].text in UNITS:
            unit, i = tokens[i + 1], i + 1  # "the 8.5-second mark"
        folded = _with_unit(token, unit)
        i += folded is not None and folded.end == unit.end
        out.append(_after_noun(folded or token, out))
    return out


def _with_unit(token: Token, unit: Token) -> Token | None:
    """The number with the unit that follows it, `other` when letters are glued to it ("2nd"), None when nothing follows."""
    glued = unit.start == token.end
    scale = (GLUED_UNITS if glued else UNITS).get(unit.text)
    if token.kind == "time" and scale is not None:
        clock = token.unit == "s"
        factor = 1.0 if clock else scale
        return Token("time", token.text, token.start, unit.end, token.value * factor, "s", factor)
    if token.kind == "time" and unit.text in ("%", "percent"):
        return token._replace(end=unit.end, unit="%")
    if token.kind == "time" and unit.text in ("frame", "frames"):
        return token._replace(end=unit.end, unit="frame")
    if glued and unit.kind == "word" and unit.text.isascii():
        return token._replace(kind="other", end=unit.end)
    return None


def _after_noun(token: Token, before: list[Token]) -> Token:
    """`frame 17` is a frame index; `event 1` and `person 1` are names, not times."""
    if token.kind != "time" or token.unit or not before:
        return token
    if before[-1].text in ("frame", "frames"):
        return token._replace(unit="frame")
    return token._replace(kind="other") if token.bare_integer and before[-1].text in LABELS else token


def _fold_compounds(tokens: list[Token]) -> list[Token]:
    """`1 minute and 5 seconds` -> 65 s. The smaller part stays below one of the larger."""
    if len({token.scale for token in tokens if token.unit == "s"}) < 2:
        return tokens
    out: list[Token] = []
    for token in tokens:
        joint = len(out) > 1 and out[-1].text in ("and", ",")
        head = out[-2] if joint else out[-1] if out else None
        if head is not None and _is_tail(head, token):
            del out[-2 if joint else -1 :]
            out.append(head._replace(text=f"{head.text} {token.text}", end=token.end, value=head.value + token.value, scale=token.scale))
        else:
            out.append(token)
    return out


def _is_tail(head: Token, tail: Token) -> bool:
    units = head.kind == tail.kind == "time" and head.unit == tail.unit == "s" and ":" not in head.text + tail.text
    return units and head.scale > tail.scale and 0 <= tail.value < head.scale
