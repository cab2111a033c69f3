"""Two evaluations of the same queries: paired bootstrap, wins and losses, bins. Numbers that do not compare are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import atomic_write
from vtgrl.core.log import logger
from vtgrl.eval.bootstrap import interval, resampled_means
from vtgrl.eval.run import METRICS
from vtgrl.eval.scoring import ROWS
from vtgrl.eval.store import PREDICTIONS, load_scored, read_json
from vtgrl.eval.summary import columns, video_groups
from vtgrl.eval.types import ThresholdOp

MUST_AGREE = ("benchmark", "parser", "threshold_op", "policy", "clip_gt", "gt_digest", "n")
"""Header keys without which two numbers are not about the same thing."""

TIE = 1e-9
_LENGTHS = (0.0, 0.1, 0.25, 0.5, math.inf)
_THIRDS = (0.0, 1 / 3, 2 / 3, math.inf)


@dataclass(frozen=True)
class Evaluation:
    """One finished evaluation: its document and its rows by id."""

    name: str
    document: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]


def load_evaluation(folder: Path) -> Evaluation:
    """Read an `--out` folder.

    Raises:
        DataError: no metrics.json, or no scored rows beside it.
    """
    document = read_json(folder / METRICS)
    if "parsers" in document:
        raise DataError(f"{folder}: scored with --parser all; compare two runs scored with one parser")
    rows = load_scored(folder / ROWS if (folder / ROWS).exists() else folder / PREDICTIONS)[: document["n"]]
    return Evaluation(str(folder), document, {str(row["id"]): row for row in rows})


def compare_runs(a: Path, b: Path, *, html: Path | None = None, draws: int = 10_000, seed: int = 0, force: bool = False) -> dict[str, Any]:
    """B minus A on the queries that both have.

    Returns {"a", "b", "n", "metrics": {name: {"a", "b", "difference", "interval", "p"}}, "wins", "losses", "ties", "bins",
    "warnings"}; a win is a query whose IoU is higher in B. `p`: two-sided, share of resampled differences on the other side
    of 0. `html`: also write a self-contained report.

    Raises:
        ConfigError: parser, rules or ground truth differ and `force` is not set, or no query is in both.
    """
    first, second = load_evaluation(a), load_evaluation(b)
    warnings = disagreements(first, second)
    if warnings and not force:
        raise ConfigError(f"the two do not compare: {'; '.join(warnings)}; score both alike, or add --force")
    for warning in warnings:
        logger.warning("not comparable: %s", warning)
    ids = [name for name in first.rows if name in second.rows]
    if not ids:
        raise ConfigError(f"{a} and {b} have no query in common")
    pairs = [(first.rows[name], second.rows[name]) for name in ids]
    op: ThresholdOp = second.document["threshold_op"]
    result = {
        "a": first.name,
        "b": second.name,
        "n": len(ids),
        "only_in_a": len(first.rows) - len(ids),
        "only_in_b": len(second.rows) - len(ids),
        "metrics": _metrics(pairs, op, draws=draws, seed=seed),
        **_wins(pairs),
        "bins": {name: _bins(pairs, key) for name, key in BINS.items()},
        "warnings": warnings,
    }
    if html is not None:
        from vtgrl.eval.report import comparison_report

        atomic_write(html, comparison_report(result, pairs))
    return result


def disagreements(a: Evaluation, b: Evaluation) -> list[str]:
    """What differs and must not, one sentence each."""
    return [
        f"{key} is {a.document.get(key)!r} and {b.document.get(key)!r}" for key in MUST_AGREE if a.document.get(key) != b.document.get(key)
    ]


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]


def _metrics(pairs: Sequence[Pair], op: ThresholdOp, *, draws: int, seed: int) -> dict[str, dict[str, Any]]:
    left, right = (columns([pair[side] for pair in pairs], threshold_op=op) for side in (0, 1))
    names = list(left)
    difference_NM = np.stack([right[n] - left[n] for n in names], axis=1)
    resampled_BM = resampled_means(difference_NM, video_groups([pair[0] for pair in pairs]), draws=draws, seed=seed)
    return {
        name: {
            "a": float(left[name].mean()),
            "b": float(right[name].mean()),
            "difference": float(difference_NM[:, m].mean()),
            "interval": list(interval(resampled_BM[:, m])),
            "p": two_sided(resampled_BM[:, m]),
        }
        for m, name in enumerate(names)
    }


def two_sided(differences_B: np.ndarray) -> float:
    """Twice the smaller share of draws on one side of 0 (draws at 0 count for both), at most 1."""
    share = min(float((differences_B <= 0).mean()), float((differences_B >= 0).mean()))
    return min(1.0, 2 * share)


def _wins(pairs: Sequence[Pair]) -> dict[str, int]:
    difference = [b["iou"] - a["iou"] for a, b in pairs]
    wins, losses = sum(d > TIE for d in difference), sum(d < -TIE for d in difference)
    return {"wins": wins, "losses": losses, "ties": len(pairs) - wins - losses}


def _bins(pairs: Sequence[Pair], key: Callable[[Mapping[str, Any]], str]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(key(pair[0]), []).append(pair)
    return {
        name: {
            "n": len(group),
            "a": float(np.mean([a["iou"] for a, _ in group])),
            "b": float(np.mean([b["iou"] for _, b in group])),
        }
        for name, group in sorted(groups.items())
    }


def query_type(row: Mapping[str, Any]) -> str:
    """The annotation's own type of query, "-" when it has none."""
    return row.get("type") or "-"


def relative_length(row: Mapping[str, Any]) -> str:
    """Length of the first true window over the clip's."""
    start, end = row["windows"][0]
    return _bin((end - start) / row["duration"], _LENGTHS) if row.get("duration") else "unknown"


def relative_position(row: Mapping[str, Any]) -> str:
    """Middle of the first true window over the clip's length, in thirds."""
    start, end = row["windows"][0]
    return _bin((start + end) / 2 / row["duration"], _THIRDS) if row.get("duration") else "unknown"


BINS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "query_type": query_type,
    "window_length": relative_length,
    "window_position": relative_position,
}


def _bin(value: float, edges: Sequence[float]) -> str:
    for low, high in pairwise(edges):
        if value < high:
            return f"{100 * low:.0f}%+" if math.isinf(high) else f"{100 * low:.0f}-{100 * high:.0f}%"
    return "unknown"


def comparison_rows(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """The comparison as the command line prints it, in per cent."""
    rows: list[Sequence[str]] = [("", "A", "B", "B - A", "95 % interval", "p")]
    for name, m in result["metrics"].items():
        low, high = m["interval"]
        rows.append(
            (
                name,
                f"{100 * m['a']:.2f}",
                f"{100 * m['b']:.2f}",
                f"{100 * m['difference']:+.2f}",
                f"{100 * low:+.2f} {100 * high:+.2f}",
                f"{m['p']:.4f}",
            )
        )
    rows.append((f"{result['n']} queries", f"{result['wins']} won", f"{result['losses']} lost", f"{result['ties']} tied", "", ""))
    for kind, groups in result["bins"].items():
        if len(groups) > 1:
            rows += [
                (f"{kind} {name}", f"{100 * g['a']:.2f}", f"{100 * g['b']:.2f}", f"{100 * (g['b'] - g['a']):+.2f}", f"{g['n']} queries", "")
                for name, g in groups.items()
            ]
    return rows
