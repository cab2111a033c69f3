"""`vtgrl`: the commands, and how an error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from vtgrl import __version__
from vtgrl.cli import bench, data, demo, doctor, evaluate, ls, merge, quickstart, recipes, train
from vtgrl.core.errors import VtgrlError
from vtgrl.core.log import setup_logging

app = typer.Typer(
    name="vtgrl",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("quickstart", rich_help_panel="Start")(quickstart.quickstart)
app.command("doctor", rich_help_panel="Start")(doctor.doctor)
app.command("demo", rich_help_panel="Start")(demo.demo)
app.command("merge", rich_help_panel="Work")(merge.merge)
app.command("bench", rich_help_panel="Work")(bench.bench)
app.command("ls", rich_help_panel="Look up")(ls.ls)
app.add_typer(train.app, name="train", rich_help_panel="Work")
app.add_typer(evaluate.app, name="eval", rich_help_panel="Work")
app.add_typer(data.app, name="data", rich_help_panel="Work")
app.add_typer(recipes.app, name="recipes", rich_help_panel="Look up")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    local_rank: Annotated[int, typer.Option("--local_rank", hidden=True, help="The deepspeed launcher adds it; LOCAL_RANK counts.")] = 0,
) -> None:
    """Post-train video language models to ground language in time.

    stdout: data. stderr: logs and progress. VTGRL_DEBUG=1 shows tracebacks.

    Exit codes: 0 ok, 1 failed run, 2 usage or recipe, 3 environment, 130 interrupted.
    """


def main() -> None:
    """Entry point of the console script."""
    setup_logging()
    try:
        app()
    except VtgrlError as error:
        if os.environ.get("VTGRL_DEBUG") == "1":
            traceback.print_exc()
        sys.stderr.write(error_text(error))
        sys.exit(error.exit_code)


def error_text(error: VtgrlError) -> str:
    """`vtgrl: error: ...`; several problems come one a line below a count."""
    rank = os.environ.get("RANK", "0")
    head = "vtgrl: error: " + ("" if rank == "0" else f"[rank {rank}] ")
    lines = str(error).splitlines()
    if len(lines) <= 1:
        return f"{head}{error}\n"
    return f"{head}{len(lines)} problems\n" + "".join(f"  {line}\n" for line in lines)
