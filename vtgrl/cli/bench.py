"""`vtgrl bench`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtgrl.cli.common import Json, print_json, stdout_for_data
from vtgrl.cli.ls import ls

if TYPE_CHECKING:
    from vtgrl.bench.types import BenchResult


def bench(
    name: Annotated[str | None, typer.Argument(help="Bench to run; nothing lists them.", show_default=False)] = None,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Sizes, such as prompt=2048.")] = None,
    json: Json = False,
) -> None:
    """Compare our way of doing something with the usual one: how many times less it costs, and how far results differ.

    Example: vtgrl bench prefix answers=16
    """
    if name is None:
        ls("bench", json)
        return
    with stdout_for_data():
        from vtgrl.bench.run import run_bench

        result = run_bench(name, overrides=keys or [])
    print_json(asdict(result)) if json else _print(result)


def _print(result: BenchResult) -> None:
    """The comparison, then what was measured."""
    from rich.console import Console
    from rich.table import Table

    table = Table("bench", "ratio", "exactness", "of", "compared with")
    table.add_row(result.bench, f"{result.ratio:.2f}x", _text(result.exactness), result.unit, result.baseline)
    details = Table("measured", "value")
    for key, value in _rows(dict(result.details)):
        details.add_row(key, value)
    Console(markup=False, highlight=False).print(table, details)


def _rows(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested details as dotted keys."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _rows(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
