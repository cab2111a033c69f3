"""`vtgrl quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def quickstart(
    out: Annotated[Path, typer.Option("--out", help="Folder to write; run again, it goes on where it stopped.")] = Path("quickstart"),
    seed: Annotated[int, typer.Option("--seed", help="Data, weights and sampling.")] = 0,
    engine: Annotated[Literal["auto", "hf", "vllm_colocate"], typer.Option("--engine", help="auto: vLLM when installed.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over in the folder.")] = False,
) -> None:
    """Make clips and a tiny model, train it (SFT, then GRPO) and show that it learned to ground. About 10 minutes on 2 cores."""
    from vtgrl.quickstart import run_quickstart

    run_quickstart(out=out, seed=seed, engine=engine, fresh=fresh)
