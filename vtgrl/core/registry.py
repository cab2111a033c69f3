"""One place to add anything: a component is one file holding a frozen config dataclass, a function and `@register`.

The registry scans the folder of a kind; no list is edited. Third parties register through the Python entry point
group `vtgrl.KIND`, or name `path/to/file.py:fn` in a recipe.

Example (a file in vtgrl/reward/):

    @dataclass(frozen=True)
    class ShortConfig(RewardConfig):
        limit: int = opt(100, "characters above which the reward is 0")

    @register("reward", "short", config=ShortConfig)
    def short(rows, *, config):
        ...
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from vtgrl.core.errors import ConfigError

KINDS: dict[str, str] = {
    "advantage": "vtgrl.algo.advantage",
    "loss": "vtgrl.algo.loss",
    "curriculum": "vtgrl.algo.curriculum",
    "reward": "vtgrl.reward",
    "engine": "vtgrl.rollout.engines",
    "family": "vtgrl.model.families",
    "probe": "vtgrl.model.probes",
    "source": "vtgrl.data.sources",
    "prompt": "vtgrl.data.prompts",
    "monitor": "vtgrl.train.monitor",
    "benchmark": "vtgrl.eval.bench",
    "parser": "vtgrl.eval.parsers",
    "bench": "vtgrl.bench",
}
"""kind -> the package whose modules are scanned."""

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class NoConfig:
    """Config of a component without settings."""


@dataclass(frozen=True)
class Bounds:
    """Range of a numeric key; None: open."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __str__(self) -> str:
        """`>= 0 and <= 1`; empty without bounds."""
        signs = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        return " and ".join(f"{sign} {limit:g}" for sign, limit in signs if limit is not None)

    def hold(self, value: float) -> bool:
        """True when `value` lies inside."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


@dataclass(frozen=True)
class Entry:
    """One registered component. `needs` names the extra passes that it wants ("ref_logp", "entropy", ...)."""

    kind: str
    name: str
    fn: Callable[..., Any]
    config: type[Any]
    paper: str
    needs: frozenset[str]

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.fn.__doc__ or "").strip().split("\n")[0]


@dataclass(frozen=True)
class Component:
    """A component as a recipe names it: `{name: grpo, std: true}` -> kind, name and its filled-in config."""

    kind: str
    name: str
    config: Any

    def entry(self) -> Entry:
        """The registry entry of this component."""
        return get(self.kind, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the component with its config."""
        return self.entry().fn(*args, config=self.config, **kwargs)


_entries: dict[tuple[str, str], Entry] = {}
_scanned: set[str] = set()


def opt(
    default: Any = MISSING,
    help: str = "",
    *,
    kind: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """A documented dataclass field.

    `kind` marks a field that holds a component (or a tuple of them) of that kind. `ge`, `gt`, `le`, `lt` bound a number;
    a recipe with a value outside is refused.
    """
    metadata = {"help": help, "kind": kind, "bounds": Bounds(ge=ge, gt=gt, le=le, lt=lt)}
    if isinstance(default, (list, dict, set)):
        raise TypeError("defaults of frozen configs are immutable: use a tuple")
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def register(kind: str, name: str, *, config: type[Any] = NoConfig, paper: str = "", needs: tuple[str, ...] = ()) -> Callable[[T], T]:
    """Decorator: make a function or class available under `name`. A second one of the same name is an error."""

    def add(fn: T) -> T:
        key = (kind, name)
        if kind not in KINDS:
            raise ConfigError(f"unknown component kind {kind!r}; kinds are: {', '.join(KINDS)}")
        old = _entries.get(key)
        if old is not None and old.fn.__qualname__ != fn.__qualname__:
            raise ConfigError(f"{kind} {name!r} is registered twice: {old.fn.__module__} and {fn.__module__}")
        _entries[key] = Entry(kind, name, fn, config, paper, frozenset(needs))
        return fn

    return add


def _scan(kind: str) -> None:
    if kind not in KINDS:
        raise ConfigError(f"unknown component kind {kind!r}; kinds are: {', '.join(KINDS)}")
    if kind in _scanned:
        return
    _scanned.add(kind)
    package = importlib.import_module(KINDS[kind])
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")
    for point in entry_points(group=f"vtgrl.{kind}"):
        point.load()


def names(kind: str) -> list[str]:
    """Sorted names of all components of a kind."""
    _scan(kind)
    return sorted(n for k, n in _entries if k == kind)


def get(kind: str, name: str) -> Entry:
    """Look a component up by name, or load `path/to/file.py:fn`.

    Raises:
        ConfigError: no such component; the message proposes the nearest name.
    """
    if ".py:" in name:
        return _from_file(kind, name)
    _scan(kind)
    entry = _entries.get((kind, name))
    if entry is None:
        near = difflib.get_close_matches(name, names(kind), 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(names(kind))}"
        raise ConfigError(f"unknown {kind} {name!r}{hint}")
    return entry


def _from_file(kind: str, name: str) -> Entry:
    known = _entries.get((kind, name))
    if known is not None:
        return known
    path, _, attr = name.rpartition(":")
    if not Path(path).is_file():
        raise ConfigError(f"{kind} {name!r}: no file {path}")
    spec = importlib.util.spec_from_file_location("vtgrl_user_" + re.sub(r"\W", "_", str(Path(path).resolve())), path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))  # dataclasses look their module up there
    if not hasattr(module, attr):
        spec.loader.exec_module(module)
    fn = getattr(module, attr, None)
    if not callable(fn):
        raise ConfigError(f"{kind} {name!r}: {path} defines no function {attr}")
    found = next((e for e in _entries.values() if e.fn is fn and e.kind == kind), None)
    entry = found or Entry(kind, name, fn, NoConfig, "", frozenset())
    _entries[(kind, name)] = entry
    return entry
