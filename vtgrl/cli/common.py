"""What the sub-commands share: options that mean the same everywhere, and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Out = Annotated[Path, typer.Option("--out", help="Folder to write.", show_default=False)]


@contextmanager
def stdout_for_data() -> Iterator[None]:
    """While libraries work, what they print goes to stderr: stdout carries nothing but our data."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def print_rows(rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns on stdout; the last one is free."""
    table = [list(row) for row in rows]
    if not table:
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    widths[-1] = 0
    for row in table:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
