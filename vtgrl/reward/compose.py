"""Several rewards -> one number a row. A reward that fails on one row never touches another row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vtgrl.core.errors import RunError
from vtgrl.core.registry import Component
from vtgrl.reward.types import RewardConfig, RewardOutput, RewardRow, RewardTable

Values = tuple[float | None, ...]


def score(rows: Sequence[RewardRow], components: Sequence[Component]) -> RewardTable:
    """Run every reward on all rows and add them up, each times its `weight`.

    None means "does not apply": the others make up the total. NaN or an infinity means "failed": a sum without that reward would
    not be comparable within the group, so the row's total is NaN. Both are counted in the metrics.

    Raises:
        RunError: a reward returned something that is not one number a row.
    """
    values: dict[str, Values] = {}
    weights: dict[str, float] = {}
    metrics: dict[str, float] = {}
    means: dict[str, tuple[float, int]] = {}
    for component in components:
        label = _label(component.name, taken=values)
        output = component(rows)
        values[label] = _checked(output, rows, label)
        weights[label] = component.config.weight if isinstance(component.config, RewardConfig) else 1.0
        metrics |= {f"reward/{label}/{key}": value for key, value in output.metrics.items()} | _counts(f"reward/{label}", values[label])
        means |= {f"reward/{label}/{key}": (math.fsum(each), len(each)) for key, each in output.means.items()}
    total = tuple(_total([(weights[label], values[label][i]) for label in values]) for i in range(len(rows)))
    per_reward = {label: tuple(math.nan if v is None else v for v in column) for label, column in values.items()}
    return RewardTable(total, per_reward, metrics, means)


def _label(name: str, *, taken: dict[str, Values]) -> str:
    """`iou`; the function's name for `path/to/file.py:fn`; `iou#2` for the second of a name."""
    base = name.rpartition(":")[2]
    number = 1 + sum(label.partition("#")[0] == base for label in taken)
    return base if number == 1 else f"{base}#{number}"


def _checked(output: RewardOutput, rows: Sequence[RewardRow], label: str) -> Values:
    if not isinstance(output, RewardOutput):
        raise RunError(f"reward {label!r} returned {type(output).__name__}: return RewardOutput(values=...), one value a row")
    if len(output.values) != len(rows):
        raise RunError(
            f"reward {label!r} returned {len(output.values)} values for {len(rows)} rows: return one a row, None if it does not apply"
        )
    return tuple(_number(value, row, label) for value, row in zip(output.values, rows, strict=True))


def _number(value: object, row: RewardRow, label: str) -> float | None:
    if value is None:
        return None
    if not hasattr(value, "__float__"):
        raise RunError(f"reward {label!r}, sample {row.sample.id!r}: {value!r} is not a number: return a float or None")
    number = float(value)
    return number if math.isfinite(number) else math.nan


def _total(parts: list[tuple[float, float | None]]) -> float:
    present = [weight * value for weight, value in parts if value is not None]
    return sum(present) if present else math.nan


def _counts(name: str, column: Values) -> dict[str, float]:
    """Rows to which the reward does not apply, and rows on which it failed."""
    failed = sum(v is not None and math.isnan(v) for v in column)
    return {f"{name}/absent": float(sum(v is None for v in column)), f"{name}/failed": float(failed)}
