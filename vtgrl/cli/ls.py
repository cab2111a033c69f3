"""`vtgrl ls KIND`: what a recipe can name."""

from __future__ import annotations

from typing import Annotated

import typer

from vtgrl.cli.common import Json, print_json, print_rows, stdout_for_data
from vtgrl.core.errors import ConfigError

KEYS = "recipe-keys"


def ls(
    kind: Annotated[str | None, typer.Argument(help="advantage, loss, reward, ...; recipe-keys; nothing lists the kinds.")] = None,
    json: Json = False,
) -> None:
    """List components of a kind (advantages, rewards, engines, ...), or every recipe key.

    Example: vtgrl ls reward
    """
    from vtgrl.core import registry

    if kind is None:
        kinds = [*registry.KINDS, KEYS]
        print_json(kinds) if json else print_rows([(name,) for name in kinds])
    elif kind == KEYS:
        _recipe_keys(json)
    elif kind in registry.KINDS:
        _components(kind, json)
    else:
        raise ConfigError(f"no kind {kind!r}; there are: {', '.join([*registry.KINDS, KEYS])}")


def _components(kind: str, json: bool) -> None:
    from vtgrl.core import registry

    with stdout_for_data():
        entries = [registry.get(kind, name) for name in registry.names(kind)]
    if json:
        print_json([{"name": e.name, "summary": e.summary, "paper": e.paper, "needs": sorted(e.needs)} for e in entries])
    else:
        print_rows([(e.name, e.summary + (f"  ({e.paper})" if e.paper else "")) for e in entries])


def _recipe_keys(json: bool) -> None:
    from vtgrl.core.reference import recipe_keys

    keys = recipe_keys()
    if json:
        print_json([vars(key) for key in keys])
    else:
        print_rows([(key.path, key.type, key.default, key.help) for key in keys])
