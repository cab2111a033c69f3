"""What a bench returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BenchResult:
    """A bench is `@register("bench", NAME, config=...) def f(*, config) -> BenchResult`.

    ratio: baseline / ours of what `unit` names ("FLOPs", "peak memory", "CPU time"); above 1 we are better.
    exactness: largest difference between the two ways' results; 0.0 is equal bit for bit.
    baseline: the other way, in one line. details: everything that was measured, JSON values only.
    """

    bench: str
    ratio: float
    exactness: float
    unit: str
    baseline: str
    details: Mapping[str, Any] = field(default_factory=dict)
