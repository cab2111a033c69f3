"""Filling frozen dataclasses from YAML layers: types come from the fields, every problem is collected with its place.

A layer is one source of values (parent recipe, recipe, each `key=value`); a later layer wins key by key. A component
keeps its keys as long as its name stays; another name starts from that component's defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import Bounds, Component, get
from vtgrl.core.scalars import INVALID, describe, read_scalar, suggest_choice
from vtgrl.core.yaml_tree import Mapping, Scalar, Sequence, Tree


class Filler:
    """Collects `problems` (one line each) and `where` (dotted key -> place of the value that won)."""

    def __init__(self, root: type[Any]) -> None:
        self.problems: list[str] = []
        self.where: dict[str, str] = {}
        self._root = root

    def section(self, cls: type[Any], layers: list[Tree], path: str = "", *, base: Any = None) -> Any:
        """An instance of `cls`, or INVALID after noting problems. `base`: an instance whose values are the defaults."""
        maps = [layer for layer in layers if isinstance(layer, Mapping)]
        for layer in layers:
            if isinstance(layer, Sequence) or (isinstance(layer, Scalar) and not layer.null):
                self._note(layer.where, f"{path} holds keys, not a value: write {path}: {{key: value}}")
        self._refuse_unknown(cls, maps, path)
        hints = get_type_hints(cls)
        values = {
            f.name: self._field(
                f, hints[f.name], [m.items[f.name] for m in maps if f.name in m.items], _join(path, f.name), default_of(f, base)
            )
            for f in dataclasses.fields(cls)
        }
        return INVALID if INVALID in values.values() else cls(**values)

    def _refuse_unknown(self, cls: type[Any], maps: list[Mapping], path: str) -> None:
        known = [f.name for f in dataclasses.fields(cls)]
        for m in maps:
            for key in m.items:
                if key not in known:
                    inside = f" in {path}" if path else ""
                    self._note(m.key_where[key], f"unknown key {key!r}{inside}{suggest_key(key, cls, self._root)}")

    def _field(self, field: dataclasses.Field[Any], hint: Any, layers: list[Tree], path: str, default: Any) -> Any:
        kind = field.metadata.get("kind")
        if dataclasses.is_dataclass(hint) and kind is None:
            assert isinstance(hint, type)
            return self.section(hint, layers, path, base=None if default is dataclasses.MISSING else default)
        if default is not dataclasses.MISSING:
            layers = [_default_tree(default), *layers]
        if not layers:
            return self._note("recipe", f"{path} is missing and has no default")
        self.where[path] = layers[-1].where
        value = self._typed(hint, layers, path, kind)
        bounds: Bounds | None = field.metadata.get("bounds")
        if bounds is not None and isinstance(value, int | float) and not bounds.hold(value):
            return self._note(layers[-1].where, f"{path} = {value:g} is outside its range ({bounds})")
        return value

    def _typed(self, hint: Any, layers: list[Tree], path: str, kind: str | None) -> Any:
        if get_origin(hint) is tuple:
            return self._tuple(get_args(hint), layers, path, kind)
        if kind is not None:
            return self._component(kind, layers, path)
        last = layers[-1]
        if isinstance(last, Mapping):
            return self._note(last.where, f"{path} is a single value and has no keys")
        if isinstance(last, Sequence):
            return self._note(last.where, f"{path} is a single value, not a list")
        value = read_scalar(hint, last)
        if value is INVALID:
            return self._note(last.where, f"{path}: expected {describe(hint)}, got {last.text!r}{suggest_choice(last.text, hint)}")
        return value

    def _tuple(self, args: tuple[Any, ...], layers: list[Tree], path: str, kind: str | None) -> Any:
        items = self._item_layers(layers, path)
        if items is None:
            return INVALID
        fixed = None if len(args) == 2 and args[1] is ... else len(args)
        if fixed is not None and len(items) != fixed:
            return self._note(layers[-1].where, f"{path}: expected {fixed} items, got {len(items)}")
        hints = [args[0]] * len(items) if fixed is None else list(args)
        values = tuple(
            self._typed(hint, item, f"{path}.{index}", kind) for index, (hint, item) in enumerate(zip(hints, items, strict=True))
        )
        return INVALID if INVALID in values else values

    def _item_layers(self, layers: list[Tree], path: str) -> list[list[Tree]] | None:
        """Layers of each item: a list replaces all, `path.0.key=value` adds to one."""
        items: list[list[Tree]] = []
        for layer in layers:
            if isinstance(layer, Sequence):
                items = [[item] for item in layer.items]
            elif isinstance(layer, Scalar):
                self._note(layer.where, f"{path} is a list: write [{layer.text}]")
                return None
            else:
                for key, value in layer.items.items():
                    if not key.isdecimal() or int(key) >= len(items):
                        self._note(layer.key_where[key], f"{path} has no item {key!r}: it has {len(items)}, counted from 0")
                        return None
                    items[int(key)].append(value)
        return items

    def _component(self, kind: str, layers: list[Tree], path: str) -> Any:
        named = self._component_name(kind, layers, path)
        if named is None:
            return INVALID
        name, keys = named
        try:
            name = absolute_component(name)
            entry = get(kind, name.text)
        except ConfigError as error:
            return self._note(name.where, f"{path}: {error}")
        config = self.section(entry.config, keys, path)
        return INVALID if config is INVALID else Component(kind, name.text, config)

    def _component_name(self, kind: str, layers: list[Tree], path: str) -> tuple[Scalar, list[Tree]] | None:
        name = Scalar("", "recipe")
        keys: list[Tree] = []
        for layer in layers:
            new = layer.items.get("name", name) if isinstance(layer, Mapping) else layer
            if not isinstance(new, Scalar) or new.null:
                self._note(layer.where, f"{path}: expected the name of a {kind}, or {{name: ..., key: ...}}")
                return None
            if new.text != name.text:
                name, keys = new, []
            if isinstance(layer, Mapping):
                keys.append(_without(layer, "name"))
        if not name.text:
            self._note(layers[-1].where, f"{path}: which {kind}? add its name")
            return None
        return name, keys

    def _note(self, where: str, problem: str) -> Any:
        self.problems.append(f"{where}: {problem}")
        return INVALID


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _without(tree: Mapping, key: str) -> Mapping:
    return Mapping({k: v for k, v in tree.items.items() if k != key}, tree.key_where, tree.where)


def default_of(field: dataclasses.Field[Any], base: Any) -> Any:
    """Default of a field: its value in the instance `base` when there is one; dataclasses.MISSING when there is none."""
    if base is not None:
        return getattr(base, field.name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _default_tree(value: Any) -> Tree:
    if isinstance(value, tuple):
        return Sequence(tuple(map(_default_tree, value)), "default")
    if value is None:
        return Scalar("", "default", null=True)
    return Scalar(str(value), "default")


def absolute_component(name: Scalar) -> Scalar:
    """`path/to/file.py:fn` with an absolute path (looked for beside the recipe, then in the working folder)."""
    if ".py:" not in name.text:
        return name
    file, _, fn = name.text.rpartition(":")
    beside = Path(name.where.rpartition(":")[0]).parent / file
    found = beside if beside.is_file() else Path(file)
    return Scalar(f"{found.resolve()}:{fn}", name.where)


def suggest_key(key: str, cls: type[Any], root: type[Any]) -> str:
    """`; did you mean ...?`: a near key of `cls`, one whose description is near, or the same key in another section."""
    near = difflib.get_close_matches(key, [f.name for f in dataclasses.fields(cls)], 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    helps = {f.metadata.get("help", "").lower(): f.name for f in dataclasses.fields(cls)}
    near = difflib.get_close_matches(key.replace("_", " "), helps, 1, cutoff=0.7)
    if near:
        return f"; did you mean {helps[near[0]]!r}?"
    elsewhere = [path for path in key_paths(root) if path.rpartition(".")[2] == key]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    names = ", ".join(f.name for f in dataclasses.fields(cls))
    return f"; there are: {names}" if names else "; it has no keys"


def key_paths(cls: type[Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a recipe class, sections opened, components closed."""
    hints = get_type_hints(cls)
    for f in dataclasses.fields(cls):
        path = _join(prefix, f.name)
        if dataclasses.is_dataclass(hints[f.name]) and f.metadata.get("kind") is None:
            yield from key_paths(hints[f.name], path)
        else:
            yield path
