"""Recipes: YAML and `key=value` into the dataclasses of `vtgrl.core.schema`, and back.

    recipe = load_recipe(GrpoRecipe, file="time_r1", overrides=["train.steps=10", "reward.0.weight=2"])

A recipe may start with `extends: NAME|FILE`; that parent may not extend another.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from vtgrl.core.checks import problems as cross_problems
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import Component
from vtgrl.core.typed import Filler
from vtgrl.core.yaml_tree import Mapping, Scalar, Tree, read_file, read_override

R = TypeVar("R")


def recipes_dir() -> Path:
    """Folder of the shipped recipes: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """Names of the shipped recipes, such as `time_r1` or `tiny/charades`."""
    root = recipes_dir()
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.yaml"))


def find_recipe(name: Path | str, *, beside: Path | None = None) -> Path:
    """The file that a recipe argument means: a file (looked for in `beside` first), or the name of a shipped recipe.

    Raises:
        ConfigError: neither; the message proposes the nearest name.
    """
    text = str(name)
    for folder in [beside] if beside else []:
        if (folder / text).is_file():
            return folder / text
    if Path(text).is_file():
        return Path(text)
    if text in recipe_names():
        return recipes_dir() / f"{text}.yaml"
    near = difflib.get_close_matches(text.removesuffix(".yaml"), recipe_names(), 1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "see `vtgrl recipes ls`"
    raise ConfigError(f"no recipe {text!r}: neither a file nor a shipped recipe; {hint}")


def load_recipe(cls: type[R], *, file: Path | str | None = None, overrides: Sequence[str] = ()) -> R:
    """A recipe of type `cls` from a file or shipped name and `key=value` overrides, all defaults filled in.

    Raises:
        ConfigError: everything that is wrong, one line each, with file:line and the nearest right spelling.
    """
    layers, problems = _file_layers(file)
    for text in overrides:
        tree, wrong = read_override(text)
        layers.append(tree)
        problems += wrong
    filler = Filler(cls)
    recipe = filler.section(cls, layers)
    problems += filler.problems
    if not problems:
        problems = [f"{filler.where.get(key, 'default')}: {key}: {text}" for key, text in cross_problems(recipe)]
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return recipe


def _file_layers(file: Path | str | None) -> tuple[list[Tree], list[str]]:
    if file is None:
        return [], []
    path = find_recipe(file)
    tree, problems = read_file(path)
    parent = tree.items.pop("extends", None)
    if parent is None:
        return [tree], problems
    try:
        base, more = _parent(parent, beside=path.parent)
    except ConfigError as error:
        return [tree], [*problems, f"{parent.where}: {error}"]
    return [base, tree], [*problems, *more]


def _parent(name: Tree, *, beside: Path) -> tuple[Mapping, list[str]]:
    if not isinstance(name, Scalar) or name.null:
        raise ConfigError("extends takes one recipe name or file")
    tree, problems = read_file(find_recipe(name.text, beside=beside))
    if "extends" in tree.items:
        raise ConfigError(f"{name.text!r} extends another recipe itself; only one level is allowed")
    return tree, problems


def to_plain(value: Any) -> Any:
    """A recipe as dicts, lists and plain values, the way YAML and JSON write it."""
    if isinstance(value, Component):
        return {"name": value.name, **to_plain(value.config)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def dump_recipe(recipe: Any) -> str:
    """YAML with every key; `load_recipe` reads it back to an equal recipe."""
    return yaml.safe_dump(to_plain(recipe), sort_keys=False, allow_unicode=True, width=120)
