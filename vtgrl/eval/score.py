"""From outputs to one scored row a query: parse, say what is odd, measure the overlap with the truth."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vtgrl.core.errors import DataError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Sample, Window
from vtgrl.eval.iou import hull_iou, merged_iou, pad_windows, pairwise_iou
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import MISSING, Parsed, Policy, ThresholdOp

NOISE = 0.02
"""Seconds by which an end may pass the duration before it is called beyond it (95.04 against 95.03999)."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Output(NamedTuple):
    """What a model gave for one query. text None: nothing (`error` says why). finish: "length" when it was cut short.
    duration: seconds of the decoded clip, used when the annotation states none."""

    text: str | None
    finish: str = "stop"
    error: str | None = None
    duration: float | None = None


@dataclass(frozen=True)
class Scorer:
    """One way to turn outputs into numbers: a parser and the rules of the project that it belongs to."""

    parser: str
    parse: Callable[..., Parsed]
    config: ParserConfig
    clip_gt: bool = False


def make_scorer(
    parser: str | Component, *, threshold_op: ThresholdOp | None = None, policy: Policy | None = None, clip_gt: bool = False
) -> Scorer:
    """The named parser with its own rules; `threshold_op` and `policy` override them.

    Raises:
        ConfigError: no such parser.
    """
    name, config = (parser.name, parser.config) if isinstance(parser, Component) else (parser, get("parser", parser).config())
    changes: dict[str, Any] = {k: v for k, v in (("threshold_op", threshold_op), ("policy", policy)) if v is not None}
    if policy == "set" and config.iou == "hull":
        changes["iou"] = "merged"
    if changes:
        config = replace(config, **changes)
    return Scorer(name, partial(get("parser", name).fn, config=config), config, clip_gt)


def score(scorer: Scorer, samples: Sequence[Sample], outputs: Sequence[Output]) -> list[dict[str, Any]]:
    """One row a sample, in order: id, video, query, type, duration, windows (the truth as scored), pred, iou, kind, flags,
    output_text, finish, error.

    `pred` is [start, end], a list of such for set parsers, or None. `iou` is NaN where the reproduced evaluator yields
    NaN; `kind` is "ok", "missing" or one of `FAILURES`, for which iou is 0. `crash` marks a row that the original loses.
    """
    parsed = [
        Parsed(kind=MISSING) if o.text is None else scorer.parse(o.text, duration=duration_of(s) or o.duration, query=s.query)
        for s, o in zip(samples, outputs, strict=True)
    ]
    truth = true_windows(samples, clip=scorer.clip_gt or scorer.config.clamp_gt, need_duration=scorer.clip_gt)
    iou_N, crash_N = _overlap(scorer.config, [p.windows for p in parsed], truth)
    single = scorer.config.iou == "hull"
    return [
        _row(sample, output, p, windows=true, iou=iou, crash=crash, single=single)
        for sample, output, p, true, iou, crash in zip(samples, outputs, parsed, truth, iou_N.tolist(), crash_N.tolist(), strict=True)
    ]


def duration_of(sample: Sample) -> float | None:
    """Stated length of the clip in seconds."""
    return None if sample.video is None else sample.video.duration


def true_windows(samples: Sequence[Sample], *, clip: bool, need_duration: bool = False) -> list[tuple[Window, ...]]:
    """True windows of each sample, clipped to [0, duration] on request.

    Raises:
        DataError: a sample without windows, or clipping is asked for and a row states no duration.
    """
    found: list[tuple[Window, ...]] = []
    for sample in samples:
        if not sample.windows:
            raise DataError(f"query {sample.id!r} has no true window: it cannot be scored; check the annotation file")
        duration = duration_of(sample)
        if clip and duration is None and need_duration:
            raise DataError(f"query {sample.id!r} states no duration: --clip-gt on needs one; use --clip-gt off")
        found.append(clip_to(sample.windows, duration) if clip and duration is not None else sample.windows)
    return found


def clipped_samples(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples with their true windows cut to the clip.

    Raises:
        DataError: a row states no duration.
    """
    windows = true_windows(samples, clip=True, need_duration=True)
    return [replace(s, windows=w) for s, w in zip(samples, windows, strict=True)]


def clip_to(windows: Sequence[Window], duration: float) -> tuple[Window, ...]:
    """Windows cut to [0, duration]."""
    return tuple((max(start, 0.0), min(end, duration)) for start, end in windows)


def _overlap(
    config: ParserConfig, pred: Sequence[tuple[Window, ...]], truth: Sequence[tuple[Window, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """-> (iou [N], whether the original raises on the row [N])."""
    if config.iou != "hull":
        measure = merged_iou if config.iou == "merged" else pairwise_iou
        chosen = [t[:1] if config.policy == "first" else t for t in truth]
        values = np.array([measure(p, t) if p else 0.0 for p, t in zip(pred, chosen, strict=True)], dtype=np.float64)
        return values, np.zeros(len(pred), dtype=bool)
    return _hull_overlap(config, pred, truth)


def _hull_overlap(
    config: ParserConfig, pred: Sequence[tuple[Window, ...]], truth: Sequence[tuple[Window, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    first_N12 = np.array([p[0] if p else (0.0, 0.0) for p in pred], dtype=np.float64).reshape(-1, 1, 2)
    answered_N = np.fromiter(map(bool, pred), dtype=bool, count=len(pred))
    truth_NW2, real_NW = pad_windows([t[:1] for t in truth] if config.policy == "first" else truth)
    iou_NW = hull_iou(first_N12, truth_NW2, empty=np.nan)
    undefined_N = (np.isnan(iou_NW) & real_NW).any(axis=1) & answered_N
    iou_N = np.where(real_NW, np.nan_to_num(iou_NW, nan=0.0), 0.0).max(axis=1)
    if config.drop_empty:
        iou_N = np.where(first_N12[:, 0, 0] >= first_N12[:, 0, 1], 0.0, iou_N)
    iou_N = np.where(answered_N, iou_N, 0.0)
    if config.zero_hull == "nan":
        iou_N = np.where(undefined_N, np.nan, iou_N)
    return iou_N, undefined_N if config.zero_hull == "crash" else np.zeros_like(undefined_N)


def _row(
    sample: Sample, output: Output, parsed: Parsed, *, windows: Sequence[Window], iou: float, crash: bool, single: bool
) -> dict[str, Any]:
    found = [list(w) for w in parsed.windows]
    duration = duration_of(sample) or output.duration
    row: dict[str, Any] = {
        "id": sample.id,
        "video": sample.video.path if sample.video else None,
        "query": sample.query,
        "type": str(sample.meta.get("type") or ""),
        "duration": duration,
        "windows": [list(w) for w in windows],
        "pred": None if not found else found[0] if single else found,
        "iou": iou,
        "kind": "ok" if found else _why(parsed, output),
        "flags": flags_of(parsed, output, duration),
        "output_text": output.text,
        "finish": output.finish,
        "error": output.error,
    }
    if crash:
        row["crash"] = True
    return row


def _why(parsed: Parsed, output: Output) -> str:
    if output.text is not None and output.finish == "length":
        return "truncated"
    return parsed.kind or failure_kind(output)


def failure_kind(output: Output) -> str:
    """Why no window came out of a text, one of `FAILURES`."""
    text = output.text or ""
    if is_truncated(output):
        return "truncated"
    numbers = len(_NUMBER.findall(text))
    return "none" if numbers == 0 else "one_number" if numbers == 1 else "format"


def is_truncated(output: Output) -> bool:
    """Cut by the token limit, or a tag that was opened and never closed."""
    text = output.text or ""
    if output.finish == "length" or "<" not in text:
        return output.finish == "length"
    return text.count("<think>") > text.count("</think>") or text.count("<answer>") > text.count("</answer>")


def flags_of(parsed: Parsed, output: Output, duration: float | None) -> list[str]:
    """What is odd about an output that gave a window, some of `FLAGS`."""
    if not parsed.windows or output.text is None:
        return []
    if parsed.flags is not None:
        return [*parsed.flags, *(["truncated"] if is_truncated(output) else [])]
    start, end = parsed.windows[0]
    found: list[str] = []
    if start >= end:
        found.append("reversed" if start > end else "zero_length")
    if duration is not None and max(start, end) > duration + NOISE:
        found.append("beyond_duration")
    if output.text.count("<answer>") > 1:
        found.append("several_answers")
    if is_truncated(output):
        found.append("truncated")
    return found
