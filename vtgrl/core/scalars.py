"""One YAML scalar as the type that its field has. The spelling decides nothing: `08` is 8 for an int and "08" for a str."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
from typing import Any, Literal, Union, get_args, get_origin

from vtgrl.core.registry import Component
from vtgrl.core.yaml_tree import Scalar

TRUE = ("true", "on", "yes")
FALSE = ("false", "off", "no")
INVALID: Any = object()
"""Stands for a value that could not be read."""


def read_scalar(hint: Any, tree: Scalar) -> Any:
    """`tree` as `hint` (bool, int, float, str, Literal, `X | None`), or INVALID."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), tree)
    if origin is Literal:
        return next((c for c in get_args(hint) if read_scalar(type(c), tree) == c), INVALID)
    if hint is str:
        return "" if tree.null and not tree.text else tree.text
    if tree.null:
        return INVALID
    if hint is bool:
        word = tree.text.strip().lower()
        return True if word in TRUE else False if word in FALSE else INVALID
    if hint is int:
        return _read_int(tree.text)
    if hint is float:
        return _read_float(tree.text)
    raise TypeError(f"recipe fields cannot have type {hint}")


def _read_union(args: tuple[Any, ...], tree: Scalar) -> Any:
    if tree.null and type(None) in args:
        return None
    values = (read_scalar(arg, tree) for arg in args if arg is not type(None))
    return next((value for value in values if value is not INVALID), INVALID)


def _read_int(text: str) -> Any:
    if re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", text):
        return int(text)
    value = _read_float(text)
    return int(value) if value is not INVALID and math.isfinite(value) and value == int(value) else INVALID


def _read_float(text: str) -> Any:
    if re.fullmatch(r"\s*[+-]?\.?inf\s*", text, re.IGNORECASE):
        return -math.inf if "-" in text else math.inf
    if not re.fullmatch(r"\s*[+-]?(\d+(_\d+)*\.?\d*|\.\d+)(e[+-]?\d+)?\s*", text, re.IGNORECASE):
        return INVALID
    return float(text)


def describe(hint: Any) -> str:
    """A type in words."""
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if origin is tuple:
        return "a list of " + describe(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return " or ".join(describe(arg) for arg in get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "a component" if hint is Component else "a section"
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "nothing (null)"}
    return words[hint]


def suggest_choice(text: str, hint: Any) -> str:
    """`; did you mean ...?` when `text` is near a choice of a Literal."""
    choices = [str(c) for c in get_args(hint)] if get_origin(hint) is Literal else []
    near = difflib.get_close_matches(text, choices, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
