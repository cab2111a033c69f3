"""IoU reward of temporal grounding, in vtgrl's corrected form and as TaRO and Time-R1 publish it.

Symbols: [p, q] predicted, [s, e] true window, D duration. With several true windows the best one counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.core.spans import clamp_window, hull_iou, iou, parse_span
from vtgrl.core.types import Window
from vtgrl.reward.official import taro_window, time_r1_window
from vtgrl.reward.types import RewardConfig, RewardOutput, RewardRow

Form = Literal["vtgrl", "taro", "time_r1", "plain"]


@dataclass(frozen=True)
class IouConfig(RewardConfig):
    """Settings of the IoU reward."""

    form: Form = opt(
        "vtgrl",
        "vtgrl: any answer that states a span, prediction and truth clamped to the clip; taro: only `Xs to Ys`, truth clamped; "
        "time_r1: only `X to Y`, nothing clamped; plain: IoU alone with the truth as annotated",
    )
    shape: Literal["auto", "boundary", "iou"] = opt(
        "auto",
        "boundary: IoU x (1 - |start error| / D) x (1 - |end error| / D); iou: IoU alone; auto: boundary on training rows, as TaRO",
    )


@register("reward", "iou", config=IouConfig, paper="arXiv:2503.13377")
def iou_reward(rows: Sequence[RewardRow], *, config: IouConfig) -> RewardOutput:
    """Overlap of the predicted with the true window, scaled by how near both boundaries are.

    Rows without a true window (other tasks) get None. A row whose clip has no positive duration cannot be scored: NaN.
    An answer without a span, and any empty overlap (also 0/0), gives 0.
    """
    kinds: Counter[str] = Counter()
    values = tuple(_value(row, config, kinds) for row in rows)
    return RewardOutput(values, {f"parse/{kind}": float(n) for kind, n in sorted(kinds.items())})


def overlap(row: RewardRow, *, form: Form) -> float | None:
    """IoU of an answer with the best true window, as `{name: iou, form: ..., shape: iou}` pays it: None without a true
    window, NaN without a duration, 0 for an answer without a span."""
    return _value(row, IouConfig(form=form, shape="iou"), Counter())


def _value(row: RewardRow, config: IouConfig, kinds: Counter[str]) -> float | None:
    if row.sample.task != "vtg" or not row.sample.windows:
        return None
    if not row.duration > 0 or math.isinf(row.duration):
        return math.nan
    window, kind = _predict(row, config.form)
    kinds[kind] += 1
    if window is None:
        return 0.0
    return max(_score(window, truth, row, config) for truth in row.sample.windows)


def _predict(row: RewardRow, form: str) -> tuple[Window | None, str]:
    text = row.completion.text
    if form in ("taro", "time_r1"):
        window = taro_window(text) if form == "taro" else time_r1_window(text)
        return window, "none" if window is None else "ok"
    result = parse_span(text, duration=row.duration, query=row.sample.query)
    return result.window, result.kind


def _score(window: Window, truth: Window, row: RewardRow, config: IouConfig) -> float:
    if config.form == "vtgrl":
        truth = clamp_window(truth, row.duration)
    elif config.form == "taro":  # each end on one side only, as published
        truth = max(truth[0], 0.0), min(truth[1], row.duration)
    official = config.form in ("taro", "time_r1")
    share = hull_iou(window, truth) if official else iou(window, truth)
    boundary = config.shape == "boundary" or (config.shape == "auto" and row.sample.split == "train")
    if config.form == "plain" or not boundary:
        return share
    return share * (1 - abs(truth[0] - window[0]) / row.duration) * (1 - abs(truth[1] - window[1]) / row.duration)
