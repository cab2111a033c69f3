"""Packed rows against the model's own forward, for every family: are they the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vtgrl.bench.measure.kit import FAMILIES, Kit, TinyConfig, group, tiny_kit
from vtgrl.bench.measure.scoring import differences, packed_way, single_way
from vtgrl.bench.measure.work import flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.model.guard import exactness_check
from vtgrl.model.types import PackedRow

ONE_TOKEN = 1


@dataclass(frozen=True)
class OneByOneConfig(TinyConfig):
    """Rows of two groups."""

    groups: tuple[int, ...] = opt((1, 2, 4, 8), "sizes of the first group of a row; the second has two answers")
    answer: int = opt(48, "tokens of the longest answer; the shortest has one", ge=1)


@register("bench", "one-by-one", config=OneByOneConfig)
def one_by_one(*, config: OneByOneConfig) -> BenchResult:
    """Packed rows give the log-probs and gradients of one-by-one scoring: all families, any group size, ragged answers."""
    families = {family: _family(family, config) for family in FAMILIES}
    cost = {way: sum(found["flops"][way] for found in families.values()) for way in ("ours", "baseline")}
    return BenchResult(
        bench="one-by-one",
        ratio=cost["baseline"] / cost["ours"],
        exactness=max(found[key] for found in families.values() for key in ("logp", "gradient_relative", "guard")),
        unit="FLOPs, forward and backward, of all rows",
        baseline="plain Hugging Face forward and backward of prompt + answer, one answer at a time",
        details=families,
    )


def _family(family: str, config: OneByOneConfig) -> dict[str, Any]:
    """The largest differences over all rows, and the work of all rows."""
    with tiny_kit(family, config) as kit:
        rows = [(group(kit, ragged(n, config.answer), seed=n), group(kit, (ONE_TOKEN, 3), seed=99)) for n in config.groups]
        found = [_compare(kit, row) for row in rows]
        guard = exactness_check(kit.policy(), rows[-1][0])
    largest = {key: max(one[key] for one in found) for key in ("logp", "gradient_relative")}
    return {**largest, "guard": guard, "flops": {way: sum(one["flops"][way] for one in found) for way in ("ours", "baseline")}}


def ragged(count: int, longest: int) -> Sequence[int]:
    """Lengths of `count` answers, no two alike where there is room, from `longest` down to one token."""
    return [max(ONE_TOKEN, longest * (count - i) // count) for i in range(count - 1)] + [ONE_TOKEN]


def _compare(kit: Kit, row: PackedRow) -> dict[str, Any]:
    ours, baseline = packed_way(kit.policy(), [row]), single_way(kit.hf(), row, full_logits=False)
    return {**differences(ours, baseline), "flops": {"ours": flops(ours.run), "baseline": flops(baseline.run)}}
