"""One self-contained HTML file for a comparison: IoU histograms, error kinds, calibration of length, span cards.

No script, no network. A is drawn in the first colour, B in the second, the truth in grey.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]

CARDS = 12
"""Span cards of each kind: most gained, most lost."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 460, 200, 40, 24
_STYLE = """
:root{color-scheme:light dark;--a:#3b6fb6;--b:#d9822b;--t:#8a8f98;--line:#c8ccd2;--text:#1c1f23;--back:#fff}
@media(prefers-color-scheme:dark){:root{--line:#444a52;--text:#e7e9ec;--back:#16181b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:960px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}figure{display:inline-block;margin:0 1rem 1rem 0;vertical-align:top}
figcaption{max-width:460px}.card{margin:.6rem 0;padding:.4rem 0;border-bottom:1px solid var(--line)}.a{fill:var(--a)}.b{fill:var(--b)}
.t{fill:var(--t)}.line{stroke:var(--line)}text{fill:var(--text);font-size:11px}.warn{color:#b3261e}.key{font-weight:600}
"""


def comparison_report(result: Mapping[str, Any], pairs: Sequence[Pair]) -> str:
    """The whole page."""
    parts = [
        f"<h1>Comparison</h1><p>A: {escape(result['a'])}<br>B: {escape(result['b'])}<br>{result['n']} queries in both.</p>",
        "".join(f'<p class="warn">Not comparable: {escape(text)}</p>' for text in result["warnings"]),
        _metric_table(result),
        "<h2>Overlap with the truth</h2>",
        _histogram([a["iou"] for a, _ in pairs], [b["iou"] for _, b in pairs], "queries by IoU"),
        "<h2>Length of the answer against the truth</h2>",
        _calibration(pairs),
        "<h2>Outputs without a window, and odd ones</h2>",
        _kinds(pairs),
        "<h2>By kind of query</h2>",
        _bin_tables(result),
        "<h2>Most gained</h2>",
        _cards(sorted(pairs, key=lambda p: p[0]["iou"] - p[1]["iou"])[:CARDS]),
        "<h2>Most lost</h2>",
        _cards(sorted(pairs, key=lambda p: p[1]["iou"] - p[0]["iou"])[:CARDS]),
    ]
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><title>vtgrl comparison</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en">{head}<body>{body}</body></html>\n'


def _metric_table(result: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td>{name}</td><td>{100 * m['a']:.2f}</td><td>{100 * m['b']:.2f}</td><td>{100 * m['difference']:+.2f}</td>"
        f"<td>{100 * m['interval'][0]:+.2f} to {100 * m['interval'][1]:+.2f}</td><td>{m['p']:.4f}</td></tr>"
        for name, m in result["metrics"].items()
    ]
    head = "<tr><th>per cent</th><th>A</th><th>B</th><th>B - A</th><th>95 % interval</th><th>p</th></tr>"
    tally = f"<p>{result['wins']} queries won by B, {result['losses']} lost, {result['ties']} tied. Bootstrap over videos.</p>"
    return f"<table>{head}{''.join(rows)}</table>{tally}"


def _histogram(a: Sequence[float], b: Sequence[float], title: str) -> str:
    counts = [np.histogram(np.clip(np.nan_to_num(values), 0, 1), bins=10, range=(0, 1))[0] for values in (a, b)]
    top = max(1, max(int(c.max()) for c in counts))
    step = (_WIDTH - _LEFT) / 10
    bars = []
    for side, (name, values) in enumerate(zip("ab", counts, strict=True)):
        for i, count in enumerate(values):
            height = (_HEIGHT - _BOTTOM - 14) * int(count) / top
            x, y = _LEFT + i * step + 2 + side * step / 2 - side, _HEIGHT - _BOTTOM - height
            bars.append(f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{step / 2 - 2:.1f}" height="{height:.1f}"/>')
    labels = "".join(f'<text x="{_LEFT + i * step:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{i / 10:.1f}</text>' for i in range(11))
    return _figure("".join(bars) + labels + f'<text x="0" y="12">{top}</text>', f"{title}; A left, B right of each pair")


def _calibration(pairs: Sequence[Pair]) -> str:
    """Mean predicted length in bins of the true length, as shares of the clip; the grey line is a perfect answer."""
    dots = [f'<line class="line" x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}"/>']
    for side, name in enumerate("ab"):
        for truth, predicted in length_bins([pair[side] for pair in pairs]):
            dots.append(f'<circle class="{name}" cx="{_x(truth):.1f}" cy="{_y(min(predicted, 1.0)):.1f}" r="4"/>')
    ticks = "".join(f'<text x="{_x(v):.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{v:.1f}</text>' for v in (0, 0.5, 1))
    ticks += "".join(f'<text x="4" y="{_y(v):.0f}">{v:.1f}</text>' for v in (0, 0.5, 1))
    return _figure("".join(dots) + ticks, "mean predicted length (up) for true lengths (across), shares of the clip")


def length_bins(rows: Sequence[Mapping[str, Any]], bins: int = 8) -> list[tuple[float, float]]:
    """(mean true length, mean predicted length) in bins of equal counts, as shares of the clip."""
    points = sorted(found for row in rows if (found := _lengths(row)) is not None)
    if not points:
        return []
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in np.array_split(np.array(points), min(bins, len(points)))]


def _lengths(row: Mapping[str, Any]) -> tuple[float, float] | None:
    window = _first_window(row)
    if window is None or not row.get("duration"):
        return None
    start, end = row["windows"][0]
    return (end - start) / row["duration"], abs(window[1] - window[0]) / row["duration"]


def _first_window(row: Mapping[str, Any]) -> Sequence[float] | None:
    pred = row["pred"]
    if not pred:
        return None
    return pred[0] if isinstance(pred[0], list) else pred


def _kinds(pairs: Sequence[Pair]) -> str:
    counts = [Counter([row["kind"] for row in side] + [flag for row in side for flag in row["flags"]]) for side in zip(*pairs, strict=True)]
    names = sorted((set(counts[0]) | set(counts[1])) - {"ok"})
    rows = "".join(f"<tr><td>{escape(n)}</td><td>{counts[0][n]}</td><td>{counts[1][n]}</td></tr>" for n in names)
    return f"<table><tr><th>kind</th><th>A</th><th>B</th></tr>{rows}</table>" if names else "<p>None.</p>"


def _bin_tables(result: Mapping[str, Any]) -> str:
    tables = []
    for kind, groups in result["bins"].items():
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{g['n']}</td><td>{100 * g['a']:.2f}</td><td>{100 * g['b']:.2f}</td></tr>"
            for name, g in groups.items()
        )
        head = f"<tr><th>{escape(kind.replace('_', ' '))}</th><th>queries</th><th>mIoU A</th><th>mIoU B</th></tr>"
        tables.append(f"<table>{head}{rows}</table>")
    return "".join(tables)


def _cards(pairs: Sequence[Pair]) -> str:
    return "".join(_card(a, b) for a, b in pairs)


def _card(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    ends = [w[1] for w in a["windows"]] + [max(w) for row in (a, b) if (w := _first_window(row)) is not None]
    scale = 600 / max(a.get("duration") or 0.0, *ends, 1e-9)
    bars = "".join(_bar("t", w, 0, scale) for w in a["windows"])
    for row, name, y in ((a, "a", 14), (b, "b", 28)):
        window = _first_window(row)
        bars += _bar(name, sorted(window), y, scale) if window is not None else f'<text x="0" y="{y + 10}">{escape(row["kind"])}</text>'
    texts = "".join(f"<div>{name}: {escape((row['output_text'] or '')[-200:])}</div>" for name, row in (("A", a), ("B", b)))
    head = f'<div><span class="key">{escape(str(a["query"]))}</span> ({escape(str(a["id"]))}) IoU {a["iou"]:.2f} to {b["iou"]:.2f}</div>'
    return f'<div class="card">{head}<svg width="620" height="42">{bars}</svg>{texts}</div>'


def _bar(name: str, window: Sequence[float], y: int, scale: float) -> str:
    width = max(1.0, (window[1] - window[0]) * scale)
    return f'<rect class="{name}" x="{window[0] * scale:.1f}" y="{y}" width="{width:.1f}" height="11"/>'


def _figure(content: str, caption: str) -> str:
    return f'<figure><svg width="{_WIDTH}" height="{_HEIGHT}">{content}</svg><figcaption>{escape(caption)}</figcaption></figure>'


def _x(value: float) -> float:
    return _LEFT + value * (_WIDTH - _LEFT - 10)


def _y(value: float) -> float:
    return (_HEIGHT - _BOTTOM) - value * (_HEIGHT - _BOTTOM - 14)
