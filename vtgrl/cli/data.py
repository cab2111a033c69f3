"""`vtgrl data world|check|difficulty|caption`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vtgrl.cli.caption import caption
from vtgrl.cli.common import Json, Out, print_json, print_rows, stdout_for_data
from vtgrl.cli.difficulty import difficulty
from vtgrl.core.errors import RunError

if TYPE_CHECKING:
    from vtgrl.data.check import CheckReport

app = typer.Typer(no_args_is_help=True, help="Make and look at data.")
app.command()(caption)
app.command()(difficulty)


@app.command()
def world(
    out: Out,
    n: Annotated[int, typer.Option("--n", min=1, help="Clips, each with one question.")] = 64,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same files.")] = 0,
    size: Annotated[int, typer.Option("--size", help="Height and width of a frame.")] = 56,
    fps: Annotated[int, typer.Option("--fps", help="Frames a second.")] = 8,
    seconds: Annotated[tuple[float, float], typer.Option("--seconds", help="Shortest and longest clip.")] = (8.0, 8.0),
    difficulty: Annotated[int, typer.Option("--difficulty", help="More shapes at a time.")] = 0,
    val_every: Annotated[int, typer.Option("--val-every", help="Every so many clips one is for validation; 0: none.")] = 8,
) -> None:
    """Generate grounding clips (mp4) with exact windows and captions.

    Example: vtgrl data world --out world --n 512 --seed 0
    """
    from vtgrl.data.world import make_world

    with stdout_for_data():
        make_world(out, n=n, seed=seed, size=size, fps=fps, seconds=seconds, difficulty=difficulty, val_every=val_every)
    typer.echo(str(out / "world.jsonl"))


def _rows(report: CheckReport) -> Iterator[tuple[str, str]]:
    yield from ((key, str(value)) for key, value in vars(report).items() if isinstance(value, int))
    yield from (("rejected", f"{where}: {reason}") for where, reason in report.rejected)
    yield from (("broken", f"{path} ({count} rows): {reason}") for path, reason, count in report.broken)
    yield from (("row", f"{where}: {reason}") for where, reason in report.rows)
    yield from (("note", note) for note in report.notes)


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="Annotation file.", show_default=False)],
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the source, such as csv=FILE.")] = None,
    source: Annotated[str, typer.Option("--source", "-s", help="A name of `vtgrl ls source`.")] = "jsonl",
    videos: Annotated[Path | None, typer.Option("--videos", help="Folder of the video files; without it that of the file.")] = None,
    backend: Annotated[Literal["pyav", "decord"], typer.Option("--backend", help="Decoder.")] = "pyav",
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds after which a decode counts as stuck.")] = 60.0,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes that decode.")] = 0,
    json: Json = False,
) -> None:
    """Read every row, decode the ends of every clip, list what cannot be used. Exit 1 when something cannot.

    Example: vtgrl data check train_2k5.json --source time_r1 --videos VIDEOS
    """
    with stdout_for_data():
        from vtgrl.core.recipe import load_recipe
        from vtgrl.core.schema import DataConfig
        from vtgrl.data.check import check_file

        data = load_recipe(DataConfig, overrides=[f"source={source}", *(f"source.{key}" for key in keys or [])])
        report = check_file(path, source=data.source, videos=videos, backend=backend, timeout_s=timeout_s, workers=workers)
    print_json(vars(report)) if json else print_rows(_rows(report))
    if not report.ok:
        raise RunError(f"{path}: some rows or videos cannot be used; see above")
