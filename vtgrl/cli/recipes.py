"""`vtgrl recipes`: the shipped recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtgrl.cli.common import Json, print_json, print_rows
from vtgrl.core.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Recipes that come with vtgrl.")
Name = Annotated[str, typer.Argument(help="A name of `vtgrl recipes ls`.", show_default=False)]


@app.command("ls")
def list_recipes(json: Json = False) -> None:
    """Names and what they are for."""
    from vtgrl.core.recipe import recipe_names, recipes_dir

    rows = [(name, _title(recipes_dir() / f"{name}.yaml")) for name in recipe_names()]
    print_json([{"name": name, "title": title} for name, title in rows]) if json else print_rows(rows)


@app.command()
def show(name: Name) -> None:
    """Print a recipe with its comments."""
    from vtgrl.core.recipe import find_recipe

    typer.echo(find_recipe(name).read_text(encoding="utf-8"), nl=False)


@app.command()
def cp(name: Name, to: Annotated[Path | None, typer.Argument(help="File or folder to write; without it ./NAME.yaml.")] = None) -> None:
    """Copy a recipe to change it."""
    from vtgrl.core.jsonl import atomic_write
    from vtgrl.core.recipe import find_recipe

    source = find_recipe(name)
    target = to or Path(source.name)
    target = target / source.name if target.is_dir() else target
    if target.exists():
        raise ConfigError(f"{target} exists; give another name")
    atomic_write(target, source.read_bytes())
    typer.echo(str(target))


def _title(path: Path) -> str:
    """The first comment line of a recipe."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("#").strip()
