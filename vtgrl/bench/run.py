"""Run a bench by name."""

from __future__ import annotations

from collections.abc import Sequence

from vtgrl.bench.types import BenchResult
from vtgrl.core.recipe import load_recipe
from vtgrl.core.registry import get


def run_bench(name: str, *, overrides: Sequence[str] = ()) -> BenchResult:
    """Run the bench `name` with `key=value` settings.

    Raises:
        ConfigError: no such bench or key; proposes the nearest one.
    """
    entry = get("bench", name)
    return entry.fn(config=load_recipe(entry.config, overrides=overrides))
