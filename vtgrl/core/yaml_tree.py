"""YAML as a tree that remembers where each value stands and how it was spelt: types come later, from the field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from vtgrl.core.errors import ConfigError


@dataclass(frozen=True)
class Scalar:
    """A value as text. `null`: nothing, `~` or `null` without quotes. `where`: `file.yaml:12` or `command line`."""

    text: str
    where: str
    null: bool = False


@dataclass(frozen=True)
class Sequence:
    """A list."""

    items: tuple[Tree, ...]
    where: str


@dataclass(frozen=True)
class Mapping:
    """key -> value; `key_where` says where each key stands."""

    items: dict[str, Tree]
    key_where: dict[str, str]
    where: str


Tree = Scalar | Sequence | Mapping


def read_file(path: Path) -> tuple[Mapping, list[str]]:
    """The tree of a recipe file, and problems (duplicate keys), one line each.

    Raises:
        ConfigError: no such file, no YAML, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; check the path, or see `vtgrl recipes ls`") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text; is this a recipe?") from error
    problems: list[str] = []
    tree = _parse(text, str(path), problems, numbered=True)
    if isinstance(tree, Scalar) and tree.null:
        tree = Mapping({}, {}, str(path))
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: a recipe is a mapping of sections, such as `train: {{steps: 10}}`")
    return tree, problems


def read_override(text: str) -> tuple[Mapping, list[str]]:
    """`a.b.0=value` as nested mappings `{a: {b: {"0": value}}}`, and problems.

    The value is taken as it stands; only `[...]`, `{...}` and quoted text are read as YAML.
    """
    key, equals, value = text.partition("=")
    where = "command line"
    parts = key.strip().split(".")
    if not equals or not all(parts):
        return Mapping({}, {}, where), [f"{where}: {text!r} is not key=value, such as train.steps=10"]
    problems: list[str] = []
    tree: Tree = Scalar(value, where)
    if value.strip()[:1] in tuple("[{\"'"):
        try:
            tree = _parse(value, where, problems, numbered=False)
        except ConfigError as error:
            problems.append(str(error))
    for part in reversed(parts):
        tree = Mapping({part: tree}, {part: where}, where)
    assert isinstance(tree, Mapping)
    return tree, problems


def _parse(text: str, source: str, problems: list[str], *, numbered: bool) -> Tree:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark is not None and numbered else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{source}{at}: not YAML ({reason})") from error
    if node is None:
        return Scalar("", source, null=True)
    try:
        return _Builder(source, problems, numbered).build(node)
    except RecursionError as error:
        raise ConfigError(f"{source}: an alias refers to a value that contains it") from error


class _Builder:
    def __init__(self, source: str, problems: list[str], numbered: bool) -> None:
        self.source = source
        self.problems = problems
        self.numbered = numbered

    def where(self, node: yaml.Node) -> str:
        return f"{self.source}:{node.start_mark.line + 1}" if self.numbered else self.source

    def build(self, node: yaml.Node) -> Tree:
        if isinstance(node, yaml.ScalarNode):
            null = node.style is None and node.value in ("", "~", "null", "Null", "NULL")
            return Scalar(node.value, self.where(node), null)
        if isinstance(node, yaml.SequenceNode):
            return Sequence(tuple(self.build(item) for item in node.value), self.where(node))
        assert isinstance(node, yaml.MappingNode)
        return self.mapping(node)

    def mapping(self, node: yaml.MappingNode) -> Mapping:
        items: dict[str, Tree] = {}
        key_where: dict[str, str] = {}
        for key, value in node.value:
            where = self.where(key)
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self.problems.append(f"{where}: a key has to be plain text")
            elif name in items:
                self.problems.append(f"{where}: key {name!r} is here twice (first at {key_where[name]}); remove one")
            else:
                items[name] = self.build(value)
                key_where[name] = where
        return Mapping(items, key_where, self.where(node))
