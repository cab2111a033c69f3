"""Scoring a predictions file against a benchmark, without a model."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtgrl.core.errors import ConfigError
from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.log import logger
from vtgrl.core.registry import get
from vtgrl.eval.benchmark import BenchConfig, gt_digest
from vtgrl.eval.bootstrap import interval, resampled_means
from vtgrl.eval.official import official_metrics, official_stop
from vtgrl.eval.predictions import Predictions, load_predictions, outputs_for
from vtgrl.eval.ranked_report import ranked_metrics, ranked_rows
from vtgrl.eval.rules import ALL, Rules, choose_protocol, make_rules
from vtgrl.eval.run import METRICS, write_document
from vtgrl.eval.score import clipped_samples, score
from vtgrl.eval.sets import set_metrics
from vtgrl.eval.summary import Rows, columns, document, video_groups
from vtgrl.eval.types import GroundTruth, ThresholdOp

if TYPE_CHECKING:
    from vtgrl.eval.vtg import VtgOptions

ROWS = "rows.jsonl"
POINT = 0.01
"""Parsers that differ by more than one point of mIoU get a warning."""

RANKED = "ranked"


def load_truth(benchmark: str, annotations: Path, *, limit: int = 0) -> tuple[GroundTruth, BenchConfig]:
    """Queries of a benchmark; the reader is told of rows that were left out.

    Raises:
        DataError: the file is missing, or holds no usable query, or another split than the benchmark's.
    """
    entry = get("benchmark", benchmark)
    truth: GroundTruth = entry.fn(annotations, config=entry.config())
    for note in truth.notes:
        logger.info("%s: %s", annotations.name, note)
    if truth.rejected:
        where, reason = truth.rejected[0]
        logger.warning("%s: %d rows cannot be used; first: %s: %s", annotations.name, len(truth.rejected), where, reason)
    if limit:
        truth = GroundTruth(truth.rows[:limit], truth.aliases, truth.rejected, truth.notes, truth.copies)
    return truth, entry.config()


def score_file(options: VtgOptions) -> dict[str, Any]:
    """The result document of `--predictions`; writes `--per-row` and, with `--out`, metrics.json and rows.jsonl."""
    with _no_collector():
        return _score_file(options)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Rows are plain data without cycles: scanning them again and again for garbage costs a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _score_file(options: VtgOptions) -> dict[str, Any]:
    truth, bench = load_truth(options.benchmark, options.annotations)
    assert options.predictions is not None
    predictions = load_predictions(options.predictions, truth)
    _tell(predictions)
    protocol = choose_protocol(bench.protocols, options.protocol)
    if options.official and not predictions.is_ranked:
        raise ConfigError(f"--official needs ranked windows (pred_relevant_windows); {options.predictions} holds texts")
    if predictions.is_ranked and (options.parser or options.policy or options.unit):
        logger.warning("ranked windows are numbers already: --parser, --policy and --unit change nothing")
    clip = options.clip_gt if options.clip_gt is not None or not options.official else bench.official_clips
    rules = make_rules(
        protocol, parser="" if predictions.is_ranked else options.parser, threshold_op=options.threshold_op,
        policy=None if predictions.is_ranked else options.policy, clip_gt=clip, unit="" if predictions.is_ranked else options.unit,
        fps=options.unit_fps,
    )  # fmt: skip
    header = common_header(options, rules, truth, predictions)
    if predictions.is_ranked:
        result, rows = _score_ranked(options, rules, truth, predictions, bench, header)
    elif options.parser == ALL:
        result, rows = _score_all(options, rules, truth, predictions, header)
    else:
        result, rows = _score_one(options, rules, truth, predictions, header)
    _write(options, result, rows)
    return result


def common_header(options: VtgOptions, rules: Rules, truth: GroundTruth, predictions: Predictions | None) -> dict[str, Any]:
    """What every result states about benchmark, ground truth and denominators."""
    header: dict[str, Any] = {
        "benchmark": options.benchmark,
        "protocol": rules.protocol.name,
        "overrides": dict(rules.overrides),
        "clip_gt": rules.clip_gt,
        "gt_digest": gt_digest(truth.rows),
        "n_gt": len(truth.rows),
        "gt_rejected": len(truth.rejected),
    }
    if predictions is not None:
        header |= {"duplicate": predictions.duplicate, "unknown": len(predictions.unknown), "matched_by_content": predictions.by_content}
    return header


def _tell(predictions: Predictions) -> None:
    if predictions.by_content:
        logger.warning("no id of the predictions is one of the benchmark's: %d rows matched by video and query", predictions.by_content)
    if predictions.unknown:
        logger.warning("%d predictions are for no query of the benchmark, first id %r", len(predictions.unknown), predictions.unknown[0])
    if predictions.duplicate:
        logger.warning("%d predictions repeat an id; the last row of an id counts", predictions.duplicate)


def _score_one(
    options: VtgOptions, rules: Rules, truth: GroundTruth, predictions: Predictions, header: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    scorer = rules.scorers[0]
    rows = score(scorer, truth.rows, outputs_for(truth.rows, predictions))
    op = scorer.config.threshold_op
    own = {"parser": scorer.parser, "threshold_op": op, "policy": scorer.config.policy}
    result = document(rows, threshold_op=op, header={**header, **own})
    if scorer.config.iou == "merged":
        result["set_metrics"] = set_metrics(rows)
    return result | _intervals(options, rows, op), rows


def _intervals(options: VtgOptions, rows: Rows, op: ThresholdOp) -> dict[str, Any]:
    if not options.bootstrap:
        return {}
    return {"confidence_intervals": confidence(rows, threshold_op=op, draws=options.bootstrap, seed=options.seed)}


def confidence(rows: Rows, *, threshold_op: ThresholdOp, draws: int, seed: int) -> dict[str, list[float]]:
    """95 % percentile bootstrap interval of every metric, videos resampled."""
    named = columns(rows, threshold_op=threshold_op)
    means_BM = resampled_means(np.stack(list(named.values()), axis=1), video_groups(rows), draws=draws, seed=seed)
    return {name: list(interval(means_BM[:, m])) for m, name in enumerate(named)}


def _score_all(
    options: VtgOptions, rules: Rules, truth: GroundTruth, predictions: Predictions, header: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    outputs = outputs_for(truth.rows, predictions)
    parsers: dict[str, Any] = {}
    per_row: list[dict[str, Any]] = [{"id": s.id, "parsers": {}} for s in truth.rows]
    for scorer in rules.scorers:
        rows = score(scorer, truth.rows, outputs)
        op = scorer.config.threshold_op
        own = {"parser": scorer.parser, "threshold_op": op, "policy": scorer.config.policy}
        parsers[scorer.parser] = document(rows, threshold_op=op, header={**header, **own}) | _intervals(options, rows, op)
        for target, row in zip(per_row, rows, strict=True):
            target["parsers"][scorer.parser] = {"pred": row["pred"], "iou": row["iou"]}
    result: dict[str, Any] = {"schema_version": 1, **header, "parser": ALL, "n": len(truth.rows), "parsers": parsers}
    warning = disagreement(parsers)
    if warning:
        result["warnings"] = [warning]
        logger.warning(warning)
    return result, per_row


def disagreement(parsers: dict[str, Any]) -> str:
    """A sentence when the mIoU of the same outputs differs by more than a point between parsers, else empty."""
    values = {name: value for name, doc in parsers.items() if (value := doc["metrics"].get("mIoU")) is not None and value == value}
    if not values:
        return ""
    low, high = min(values, key=lambda n: values[n]), max(values, key=lambda n: values[n])
    if values[high] - values[low] <= POINT:
        return ""
    points = 100 * (values[high] - values[low])
    return (
        f"the same outputs differ by {points:.1f} points of mIoU between parsers ({low} {100 * values[low]:.1f}, {high} "
        f"{100 * values[high]:.1f}): name the parser with every number"
    )


def _score_ranked(
    options: VtgOptions, rules: Rules, truth: GroundTruth, predictions: Predictions, bench: BenchConfig, header: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rows = ranked_rows(truth.rows, predictions.ranked, clip_gt=rules.clip_gt)
    op: ThresholdOp = options.threshold_op or "ge"
    own = {"parser": RANKED, "threshold_op": op, "policy": "max"}
    result = document(rows, threshold_op=op, header={**header, **own}) | _intervals(options, rows, op)
    result["ranked"] = ranked_metrics(truth.rows, predictions.ranked, clip_gt=rules.clip_gt, ranges=bench.length_ranges)
    invalid = result["ranked"]["invalid_windows"]
    if invalid:
        logger.warning("%d predicted windows are reversed, empty or not finite: they are left out, and reported", invalid)
    if options.official:
        result |= _official(truth, predictions, bench, rules)
    return result, rows


def _official(truth: GroundTruth, predictions: Predictions, bench: BenchConfig, rules: Rules) -> dict[str, Any]:
    stop = official_stop(truth.rows, predictions.ranked)
    if stop:
        logger.warning("the official tool gives no numbers for this file: %s", stop)
        return {"official": None, "official_error": stop}
    samples = clipped_samples(truth.rows) if rules.clip_gt else truth.rows
    return {"official": official_metrics(samples, predictions.ranked, ranges=bench.length_ranges)}


def _write(options: VtgOptions, result: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    if options.per_row is not None:
        atomic_write(options.per_row, "".join(to_line({"qid": row["id"], **row}) for row in rows))
    if options.out is not None:
        atomic_write(options.out / ROWS, "".join(map(to_line, rows)))
        write_document(options.out / METRICS, result)


def problems(result: dict[str, Any]) -> dict[str, int]:
    """What `--strict` refuses: gaps, strangers, duplicates, unusable ground truth and outputs without a window."""
    documents = list(result["parsers"].values()) if "parsers" in result else [result]
    found = {
        "missing": max(doc["missing"] for doc in documents),
        "duplicate": result.get("duplicate", 0),
        "unknown": result.get("unknown", 0),
        "gt_rejected": result["gt_rejected"],
        "parse failures": sum(max(doc["parse_failures"][kind] for doc in documents) for kind in documents[0]["parse_failures"]),
        "impossible windows": result.get("ranked", {}).get("invalid_windows", 0),
    }
    return {name: count for name, count in found.items() if count}
