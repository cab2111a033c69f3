"""A result document as the rows that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = ("mIoU", "R1@0.3", "R1@0.5", "R1@0.7")


def result_rows(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """Metrics in per cent, then what does not fit into them."""
    if "parsers" in result:
        return _side_by_side(result)
    metrics, errors = result["metrics"], result["standard_errors"]
    rows: list[Sequence[str]] = [
        ("benchmark", str(result["benchmark"])),
        ("protocol", _protocol(result)),
        ("parser", str(result["parser"])),
    ]
    for name in NAMES:
        error = f" ± {100 * errors[name]:.2f}" if name in errors else ""
        rows.append((name, f"{_percent(metrics.get(name))}{error}"))
    rows.append(("queries", f"{result['n']}, {result['missing']} without output (they count as 0)"))
    if "metrics_found" in result:
        rows.append(("of those found", ", ".join(f"{n} {_percent(result['metrics_found'][n])}" for n in NAMES)))
    rows += [("no window", _counts(result["parse_failures"])), ("odd", _counts(result["flags"])), ("ground truth", result["gt_digest"])]
    rows += [(key, str(result[key])) for key in ("duplicate", "unknown", "gt_rejected", "nan", "excluded_by_original") if result.get(key)]
    rows += _ranked(result)
    return rows


def _protocol(result: Mapping[str, Any]) -> str:
    changed = ", ".join(f"{key}={value}" for key, value in result["overrides"].items())
    return str(result["protocol"]) + (f" ({changed})" if changed else "")


def _ranked(result: Mapping[str, Any]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    if "ranked" in result:
        ranked = result["ranked"]
        rows.append(("mAP", f"{_percent(ranked['mAP']['average'])}, @0.5 {_percent(ranked['mAP']['@0.5'])}"))
        rows.append(("best score", ", ".join(f"{name} {_percent(value)}" for name, value in ranked["by_score"].items())))
        rows.append(("left out", f"{ranked['invalid_windows']} impossible windows"))
    if result.get("official_error"):
        rows.append(("official", f"none: {result['official_error']}"))
    elif result.get("official"):
        rows += [(f"official {name}", f"{value:.2f}") for name, value in result["official"]["brief"].items()]
    return rows


def _side_by_side(result: Mapping[str, Any]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("parser", *NAMES, "no window", "R1 counts")]
    for name, document in sorted(result["parsers"].items(), key=lambda item: -(item[1]["metrics"].get("mIoU") or 0.0)):
        values = [_percent(document["metrics"].get(n)) for n in NAMES]
        rows.append((name, *values, str(sum(document["parse_failures"].values())), {"ge": ">=", "gt": ">"}[document["threshold_op"]]))
    return rows


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
