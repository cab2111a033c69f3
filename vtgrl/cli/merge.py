"""`vtgrl merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtgrl.cli.common import Out, stdout_for_data


def merge(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN/ckpt/step_N|RUN/ckpt/best", help="Checkpoint folder of a run, or the one that validated best.", show_default=False
        ),
    ],
    out: Out,
) -> None:
    """Turn a sharded checkpoint into a Hugging Face folder.

    Example: vtgrl merge runs/grpo/ckpt/step_000050 --out model
    """
    with stdout_for_data():
        from vtgrl.merge.zero3 import merge_checkpoint

        merge_checkpoint(source, out=out)
    typer.echo(str(out))
