"""`vtgrl train sft|grpo`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vtgrl.cli.common import Json, print_json, stdout_for_data
from vtgrl.core.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Train a policy.")

Kind = Literal["sft", "grpo"]

Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as optim.lr=1e-6.")]
Recipe = Annotated[str | None, typer.Option("--recipe", "-r", metavar="FILE|NAME", help="Recipe file, or a name of `vtgrl recipes ls`.")]
RunDir = Annotated[Path | None, typer.Option("--run-dir", "-o", help="Run folder; without it runs/KIND-DATE.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="auto|PATH", help="Go on from the newest checkpoint, or from PATH.")]
Nproc = Annotated[int, typer.Option("--nproc", "-n", min=1, help="Ranks on this machine (one a GPU). Under torchrun: leave it.")]
Dry = Annotated[
    bool, typer.Option("--dry-run", rich_help_panel="Look first", help="Resolve all, open the data, print the plan; no weights.")
]
Allow = Annotated[bool, typer.Option("--allow-missing", rich_help_panel="Look first", help="Dry run: exit 0 without model or data.")]
Print = Annotated[bool, typer.Option("--print-config", rich_help_panel="Look first", help="Print the resolved recipe.")]


@app.command()
def sft(
    overrides: Overrides = None,
    recipe: Recipe = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    nproc: Nproc = 1,
    dry_run: Dry = False,
    allow_missing: Allow = False,
    print_config: Print = False,
    json: Json = False,
) -> None:
    """Supervised fine-tuning on the template's answers.

    Example: vtgrl train sft -r tiny/charades --run-dir runs/sft
    """
    _train("sft", overrides or [], recipe, run_dir, resume, nproc, dry_run, allow_missing, print_config, json)


@app.command()
def grpo(
    overrides: Overrides = None,
    recipe: Recipe = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    nproc: Nproc = 1,
    dry_run: Dry = False,
    allow_missing: Allow = False,
    print_config: Print = False,
    json: Json = False,
) -> None:
    """Reinforcement learning from rewards, several answers a prompt.

    Example: vtgrl train grpo -r time_r1 data.path=train.json data.videos=videos --nproc 8
    """
    _train("grpo", overrides or [], recipe, run_dir, resume, nproc, dry_run, allow_missing, print_config, json)


def _train(
    kind: Kind,
    overrides: list[str],
    recipe: str | None,
    run_dir: Path | None,
    resume: str | None,
    nproc: int,
    dry_run: bool,
    allow_missing: bool,
    print_config: bool,
    json: bool,
) -> None:
    from vtgrl.core.checks import missing
    from vtgrl.core.recipe import dump_recipe, load_recipe
    from vtgrl.core.schema import GrpoRecipe, SftRecipe

    cls: type[Any] = {"sft": SftRecipe, "grpo": GrpoRecipe}[kind]
    with stdout_for_data():
        loaded = load_recipe(cls, file=recipe, overrides=overrides)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if print_config:
        typer.echo(dump_recipe(loaded), nl=False)
        return
    if dry_run:
        _dry_run(kind, loaded, world_size=max(world, nproc), allow_missing=allow_missing, json=json)
        return
    if empty := missing(loaded):
        raise ConfigError("\n".join(f"{key} {problem}" for key, problem in empty))
    run_dir = _run_dir(kind, run_dir, resume, world)
    if nproc > 1:
        raise typer.Exit(_launch(kind, overrides, recipe, run_dir, resume, nproc, json))
    with stdout_for_data():
        summary = _run(kind, loaded, run_dir, resume)
    if os.environ.get("RANK", "0") == "0":
        print_json(summary) if json else typer.echo(summary["model"])


def _run(kind: Kind, recipe: Any, run_dir: Path, resume: str | None) -> dict[str, Any]:
    if kind == "sft":
        from vtgrl.train.sft import run_sft

        return run_sft(recipe, run_dir=run_dir, resume=resume)
    from vtgrl.train.grpo import run_grpo

    return run_grpo(recipe, run_dir=run_dir, resume=resume)


def _run_dir(kind: Kind, run_dir: Path | None, resume: str | None, world: int) -> Path:
    """All ranks and all starts of a run need the same folder."""
    if run_dir is not None:
        return run_dir
    if resume == "auto":
        raise ConfigError("--resume auto looks into the run folder: add --run-dir")
    if resume is not None:
        return Path(resume).resolve().parent.parent
    if world > 1:
        raise ConfigError("every rank has to write to the same folder: add --run-dir")
    return Path("runs") / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"


def _launch(kind: Kind, overrides: list[str], recipe: str | None, run_dir: Path, resume: str | None, nproc: int, json: bool) -> int:
    from vtgrl.train.launch import launch

    if "RANK" in os.environ:
        raise ConfigError("--nproc starts ranks itself, and a launcher has started this one: leave --nproc out")
    command = [sys.executable, "-P", "-m", "vtgrl", "train", kind, "--run-dir", str(run_dir)]
    command += [f"--recipe={recipe}"] if recipe else []
    command += [f"--resume={resume}"] if resume else []
    command += ["--json"] if json else []
    return launch([*command, "--", *overrides], nproc=nproc)


def _dry_run(kind: Kind, recipe: Any, *, world_size: int, allow_missing: bool, json: bool) -> None:
    with stdout_for_data():
        from vtgrl.train.plan import plan

        report = plan(recipe, kind=kind, world_size=world_size)
    print_json(report.to_dict()) if json else typer.echo(report.to_text())
    if report.missing and not allow_missing:
        raise ConfigError("\n".join(report.missing))
