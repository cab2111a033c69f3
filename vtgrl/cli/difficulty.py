"""`vtgrl data difficulty`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vtgrl.cli.common import Json, print_json, print_rows, stdout_for_data

if TYPE_CHECKING:
    from vtgrl.eval.difficulty import DifficultyReport

DRAW = "Draw a set"


def difficulty(
    out: Annotated[Path, typer.Option("--out", help="JSONL to write; answers are kept beside it, in OUT.answers.", show_default=False)],
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys: data.*, video.*, validation.*.")] = None,
    recipe: Annotated[str | None, typer.Option("--recipe", "-r", metavar="FILE|NAME", help="Ask as this recipe trains.")] = None,
    data: Annotated[str, typer.Option("--data", help="Annotation file (data.path).")] = "",
    source: Annotated[str, typer.Option("--source", "-s", help="Its reader (data.source).")] = "",
    videos: Annotated[str, typer.Option("--videos", help="Folder of the videos (data.videos).")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="Who answers (model.path); without: rows state it already.")] = "",
    engine: Annotated[Literal["", "hf", "vllm"], typer.Option("--engine", help="Empty: vllm on a GPU when installed, else hf.")] = "",
    dtype: Annotated[Literal["", "bf16", "fp32"], typer.Option("--dtype", help="Empty: bf16 on a GPU, else fp32.")] = "",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows a call of the engine.")] = 16,
    k: Annotated[int, typer.Option("--k", min=0, rich_help_panel=DRAW, help="Rows to draw, without replacement; 0: all.")] = 0,
    mu: Annotated[float, typer.Option("--mu", rich_help_panel=DRAW, help="IoU that is drawn most.")] = 0.3,
    sigma: Annotated[float, typer.Option("--sigma", min=1e-6, rich_help_panel=DRAW, help="Width of the bell.")] = 0.2,
    above: Annotated[float, typer.Option("--above", rich_help_panel=DRAW, help="Only rows of larger IoU; -1: also 0.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", rich_help_panel=DRAW, help="Of the draw.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", rich_help_panel=DRAW, help="Stop when fewer than k can be drawn.")] = False,
    json: Json = False,
) -> None:
    """Write into every row how well a model answers it: meta.difficulty = 100 x IoU, Time-R1's convention. HIGH IS EASY.

    A second start goes on where the first ended. Rows whose video cannot be used are named and left out.

    Example: vtgrl data difficulty -r time_r1 -m MODEL --data pool.json --videos VIDEOS --out rated.jsonl --k 2500
    """
    with stdout_for_data():
        from vtgrl.core.recipe import load_recipe
        from vtgrl.core.schema import GrpoRecipe, SelectConfig
        from vtgrl.eval.difficulty import DifficultyOptions, rate

        given = {"data.path": data, "data.source": source, "data.videos": videos, "model.path": model}
        loaded = load_recipe(
            GrpoRecipe, file=recipe, overrides=[*(f"{key}={value}" for key, value in given.items() if value), *(keys or [])]
        )
        select = SelectConfig(k=k, mu=mu, sigma=sigma, above=above, seed=seed, strict=strict)
        report = rate(DifficultyOptions(loaded, out, engine=engine, dtype=dtype or None, batch=batch, select=select))
    print_json(vars(report)) if json else print_rows(_rows(report))


def _rows(report: DifficultyReport) -> Iterator[tuple[str, str]]:
    for key in ("rows", "answered", "solved", "hopeless", "written"):
        yield key, str(vars(report)[key])
    yield "mean IoU", f"{report.mean:.4f}"
    for place, count in enumerate(report.histogram):
        yield ("100" if place == 10 else f"{10 * place} to {10 * place + 10}"), str(count)
    yield from (("failed", f"{name}: {reason}") for name, reason in report.failed.items())
