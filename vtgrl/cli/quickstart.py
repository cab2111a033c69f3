"""`vtgrl quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quickstart(
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")] = Path("quickstart"),
    seed: Annotated[int, typer.Option("--seed", help="Data, weights and sampling.")] = 0,
) -> None:
    """Make clips and a tiny model, train it (SFT, then GRPO) and show that it learned to ground. About 10 minutes on 2 cores."""
    from vtgrl.quickstart import run_quickstart

    run_quickstart(out=out, seed=seed)
