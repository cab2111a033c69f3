"""The recipe reference, made from the code: `python -m vtgrl.core.reference docs/recipes.md`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from vtgrl.core import registry
from vtgrl.core.scalars import describe
from vtgrl.core.schema import GrpoRecipe, SftRecipe
from vtgrl.core.typed import default_of

INTRO = """# Recipe keys

Made from the code by `python -m vtgrl.core.reference docs/recipes.md`; do not edit. `vtgrl ls recipe-keys` prints the same.

A recipe is a YAML file. `extends: NAME|FILE` takes another recipe's keys first (one level). On the command line,
`section.key=value` changes one key and `list.0.key=value` a key of a list item. `vtgrl train KIND --print-config` shows what comes out.

A key that holds a *component* takes its name, or its name with keys: `advantage: grpo`, `advantage: {name: grpo, std: false}`.
`path/to/file.py:function` names one of your own. Lists are written `[a, b]`.
"""
RECIPES = (SftRecipe, GrpoRecipe)


@dataclass(frozen=True)
class Key:
    """One documented key. `range`: bounds of a number, empty without."""

    path: str
    type: str
    default: str
    range: str
    help: str


def recipe_keys() -> list[Key]:
    """Every key of every recipe, in order, each once."""
    return list({key.path: key for cls in RECIPES for key in section_keys(cls)}.values())


def section_keys(cls: type[Any], prefix: str = "", base: Any = None) -> Iterator[Key]:
    """Keys of a section and of the sections in it."""
    hints = get_type_hints(cls)
    for f in dataclasses.fields(cls):
        hint, default = hints[f.name], default_of(f, base)
        kind = f.metadata.get("kind")
        if dataclasses.is_dataclass(hint) and kind is None:
            assert isinstance(hint, type)
            yield from section_keys(hint, f"{prefix}{f.name}.", default)
        else:
            yield Key(prefix + f.name, _type(hint, kind), _text(default), str(f.metadata.get("bounds") or ""), f.metadata.get("help", ""))


def _type(hint: Any, kind: str | None) -> str:
    return describe(hint).replace("a component", f"{kind} component") if kind else describe(hint)


def _text(default: Any) -> str:
    if default is dataclasses.MISSING:
        return "(needed)"
    if isinstance(default, tuple):
        return "[" + ", ".join(map(_text, default)) + "]"
    if isinstance(default, bool):
        return str(default).lower()
    return "null" if default is None else str(default)


def markdown() -> str:
    """The reference page."""
    return "\n".join([INTRO, *_sections(), "# Components\n", *_components()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    sections: dict[str, list[Key]] = {}
    for key in recipe_keys():
        sections.setdefault(key.path.split(".")[0], []).append(key)
    for name, keys in sections.items():
        holders = [cls.__doc__ or "" for cls in RECIPES if name in cls.__dataclass_fields__]
        yield f"## {name}\n\nIn: {', '.join(f'`{h}`' for h in holders)}.\n"
        yield _table(keys)


def _components() -> Iterator[str]:
    for kind in registry.KINDS:
        yield f"## {kind}\n"
        for name in registry.names(kind):
            entry = registry.get(kind, name)
            paper = f" ({entry.paper})" if entry.paper else ""
            yield f"**{name}**: {entry.summary}{paper}\n"
            keys = list(section_keys(entry.config))
            if keys:
                yield _table(keys)


def _table(keys: list[Key]) -> str:
    rows = ["| key | type | default | range | meaning |", "| --- | --- | --- | --- | --- |"]
    for key in keys:
        cells = (f"`{key.path}`", key.type, f"`{key.default}`" if key.default else "", key.range, key.help)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
