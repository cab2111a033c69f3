"""Records of an evaluation. No torch: scoring a predictions file starts at once.

Shape legend: N queries, W ground-truth windows of a query, K predicted windows of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from vtgrl.core.types import Sample, Window

ThresholdOp = Literal["ge", "gt"]
Policy = Literal["max", "first", "set"]

MISSING = "missing"
"""Kind of a query without any output: it counts as IoU 0."""

FAILURES = ("none", "one_number", "format", "wrong_unit", "truncated")
"""Why an output gave no window: no time at all; a single one; numbers, in a form that this parser does not read; another unit
than declared; cut short."""

FLAGS = ("reversed", "swapped", "zero_length", "beyond_duration", "several_answers", "truncated", "not_finite")
"""What is odd about an output that did give a window."""


class Parsed(NamedTuple):
    """What a parser read from one output.

    windows: as this parser hands them on: possibly reversed, possibly several; empty when it found none.
    kind: why there is none, one of `FAILURES`, when the parser knows. flags: some of `FLAGS`, when the parser knows; both
    are worked out from text and windows where the parser leaves them None.
    """

    windows: tuple[Window, ...] = ()
    kind: str | None = None
    flags: tuple[str, ...] | None = None


@dataclass(frozen=True)
class GroundTruth:
    """The queries of a benchmark, windows as published (not clipped).

    aliases: other ids under which the same query is known (TaRO's "test7", lighthouse's 12411) -> row id.
    rejected: (file:row, reason) of rows that cannot be used. notes: remarks for the reader. copies: an id that several rows
    of the file share -> the ids that they got.
    """

    rows: tuple[Sample, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    rejected: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EvalResult:
    """metrics: flat numbers for a log (`miou`, `r1@0.5`, ..., see `vtgrl.eval.summary`). rows: one JSON-able dict a query,
    in the order of the samples: id, video, output_text, finish, pred, iou, kind, flags, error."""

    metrics: dict[str, float]
    rows: tuple[dict[str, Any], ...]
