"""Recipes: types, errors with places, extends, overrides, components, and the way back."""

import random
import string
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from vtgrl.core import registry
from vtgrl.core.errors import ConfigError
from vtgrl.core.recipe import dump_recipe, load_recipe
from vtgrl.core.registry import Component, opt, register
from vtgrl.core.schema import SftRecipe, section

KIND = "monitor"
"""Any kind will do: its folder imports nothing heavy."""


@dataclass(frozen=True)
class OneConfig:
    weight: float = opt(1.0, "multiplies the value", ge=0)
    mode: Literal["fast", "slow"] = opt("fast", "speed")
    limit: int | None = opt(None, "no limit when null")


@dataclass(frozen=True)
class TwoConfig:
    depth: int = opt(3, "levels")


def one(*, config):
    """One."""


def two(*, config):
    """Two."""


@pytest.fixture(autouse=True)
def components():
    """Two components that only these tests see."""
    register(KIND, "test_one", config=OneConfig)(one)
    register(KIND, "test_two", config=TwoConfig)(two)
    yield
    for key in [key for key, entry in registry._entries.items() if not entry.fn.__module__.startswith("vtgrl.")]:
        del registry._entries[key]


@dataclass(frozen=True)
class Inner:
    rate: float = opt(0.5, "share of something", ge=0, le=1)
    span: tuple[float, float] = opt((0.0, 1.0), "from, to")


@dataclass(frozen=True)
class Toy:
    lr: float = opt(1e-6, "peak learning rate", ge=0)
    steps: int = opt(10, "how many", ge=1)
    on: bool = opt(True, "switch")
    title: str = opt("", "words")
    level: Literal[0, 1, 2] = opt(0, "stage")
    names: tuple[str, ...] = opt(("a", "b"), "words")
    inner: Inner = section(Inner)
    part: Component = opt("test_one", "a component", kind=KIND)
    parts: tuple[Component, ...] = opt(("test_one", "test_two"), "components", kind=KIND)


@dataclass(frozen=True)
class Needed:
    path: str = opt(help="has no default")


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def problems(cls, **kwargs) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(cls, **kwargs)
    return str(caught.value).splitlines()


# --- types (public fault 62) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "key", "value"),
    [
        ("lr: 1e-6", "lr", 1e-6),
        ("lr: 1E3", "lr", 1000.0),
        ("lr: '1e-6'", "lr", 1e-6),
        ("lr: 5", "lr", 5.0),
        ("lr: .inf", "lr", float("inf")),
        ("steps: 08", "steps", 8),
        ("steps: 1E3", "steps", 1000),
        ("steps: 100_000", "steps", 100_000),
        ("on: on", "on", True),
        ("on: No", "on", False),
        ("on: FALSE", "on", False),
        ("title: 08", "title", "08"),
        ("title: on", "title", "on"),
        ("title: 1e-6", "title", "1e-6"),
        ("title:", "title", ""),
        ("title: null", "title", "null"),
        ("level: 2", "level", 2),
        ("names: []", "names", ()),
        ("names: [08, on]", "names", ("08", "on")),
    ],
)
def test_a_value_gets_the_type_of_its_key_from_file_and_command_line(tmp_path, spelt, key, value):
    recipe = load_recipe(Toy, file=write(tmp_path, spelt))
    assert getattr(recipe, key) == value
    assert type(getattr(recipe, key)) is type(value)
    text = spelt.partition(":")[2].strip()
    if spelt != "title: null":
        assert getattr(load_recipe(Toy, overrides=[f"{key}={text}"]), key) == value


@pytest.mark.parametrize(
    ("spelt", "says"),
    [
        ("lr: on", "expected a number, got 'on'"),
        ("lr: nan", "expected a number"),
        ("lr: 1e-6x", "expected a number"),
        ("lr:", "expected a number, got ''"),
        ("steps: 1.5", "expected a whole number"),
        ("steps: true", "expected a whole number"),
        ("on: 1", "expected true or false, got '1'"),
        ("level: 3", "expected one of 0, 1, 2, got '3'"),
        ("names: a", "names is a list: write [a]"),
        ("inner: 3", "inner holds keys"),
        ("lr: [1]", "lr is a single value, not a list"),
        ("lr: {a: 1}", "lr is a single value and has no keys"),
        ("inner: {span: [1]}", "inner.span: expected 2 items, got 1"),
        ("part: {weight: 1, mode: slwo}", "part.mode: expected one of fast, slow, got 'slwo'; did you mean 'slow'?"),
        ("lr: -1", "lr = -1 is outside its range (>= 0)"),
        ("inner: {rate: 1.5}", "inner.rate = 1.5 is outside its range (>= 0 and <= 1)"),
        ("part: {weight: -2}", "part.weight = -2 is outside its range (>= 0)"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_place(tmp_path, spelt, says):
    (line,) = problems(Toy, file=write(tmp_path, f"# comment\n{spelt}\n"))
    assert line.startswith(f"{tmp_path}/r.yaml:2: ")
    assert says in line


def test_null_is_a_value_only_where_it_is_allowed():
    assert load_recipe(Toy, overrides=["part.limit=7"]).part.config.limit == 7
    assert load_recipe(Toy, overrides=["part={limit: null}"]).part.config.limit is None


def test_a_key_without_a_default_is_asked_for():
    assert problems(Needed) == ["recipe: path is missing and has no default"]
    assert load_recipe(Needed, overrides=["path=x=y"]).path == "x=y"


# --- unknown keys, all errors at once ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "says"),
    [
        ("stepz: 1", "unknown key 'stepz'; did you mean 'steps'?"),
        ("learing_rate: 1", "unknown key 'learing_rate'; did you mean 'lr'?"),
        ("rate: 1", "unknown key 'rate'; did you mean inner.rate?"),
        ("inner: {rte: 1}", "unknown key 'rte' in inner; did you mean 'rate'?"),
        ("part: {name: test_two, wieght: 1}", "unknown key 'wieght' in part; there are: depth"),
        ("parts: [{name: test_one, wieght: 1}]", "unknown key 'wieght' in parts.0; did you mean 'weight'?"),
        ("part: test_onee", "part: unknown monitor 'test_onee'; did you mean 'test_one'?"),
        ("part: {name: }", "part: expected the name of a monitor"),
        ("parts: {0: {weight: 1}, 5: x}", "parts has no item '5': it has 2, counted from 0"),
    ],
)
def test_an_unknown_key_or_name_comes_with_the_nearest_one(tmp_path, spelt, says):
    (line,) = problems(Toy, file=write(tmp_path, spelt))
    assert line.startswith(f"{tmp_path}/r.yaml:1: ")
    assert says in line


def test_all_errors_are_reported_at_once_each_with_its_line(tmp_path):
    path = write(tmp_path, "lr: fast\nstepz: 3\ninner:\n  rate: 2\n  rate: 0.1\npart: nope\n")
    lines = problems(Toy, file=path, overrides=["level=9", "nonsense", "=3"])
    wanted = [
        f"{path}:1: lr",
        f"{path}:2: unknown key 'stepz'",
        f"{path}:4: inner.rate = 2",
        f"{path}:5: key 'rate' is here twice",
        f"{path}:6: part: unknown monitor",
        "command line: level",
        "command line: 'nonsense' is not key=value",
        "command line: '=3' is not key=value",
    ]
    assert len(lines) == len(wanted)
    for start in wanted:
        assert any(line.startswith(start) for line in lines), (start, lines)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: [1, 2", "not YAML"),
        ("- a\n- b\n", "a recipe is a mapping"),
        ("just words", "a recipe is a mapping"),
        ("? [a]\n: 1\n", "a key has to be plain text"),
        ("inner: &x {rate: *x}\n", "alias"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_recipe_is_one_line(tmp_path, content, says):
    path = tmp_path / "r.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (line,) = problems(Toy, file=path)
    assert line.startswith(str(path))
    assert says in line


def test_a_recipe_that_does_not_exist_gets_the_nearest_name(tmp_path):
    (line,) = problems(SftRecipe, file="time_r")
    assert "did you mean 'time_r1'?" in line
    (line,) = problems(SftRecipe, file=tmp_path / "no.yaml")
    assert "neither a file nor a shipped recipe" in line


def test_an_empty_recipe_is_all_defaults(tmp_path):
    assert load_recipe(Toy, file=write(tmp_path, "# nothing\n")) == load_recipe(Toy)


# --- layers ------------------------------------------------------------------------------------------------------


def test_extends_takes_the_parents_keys_one_level_deep(tmp_path):
    write(tmp_path, "lr: 1\nsteps: 5\ninner: {rate: 0.1}\npart: {name: test_one, weight: 3, mode: slow}\n", "base.yaml")
    child = write(tmp_path, "extends: base.yaml\nsteps: 6\ninner: {span: [1, 2]}\npart: {weight: 4}\n")
    recipe = load_recipe(Toy, file=child)
    assert (recipe.lr, recipe.steps, recipe.inner) == (1.0, 6, Inner(rate=0.1, span=(1.0, 2.0)))
    assert recipe.part.config == OneConfig(weight=4.0, mode="slow")
    grandchild = write(tmp_path, f"extends: {child}\n", "g.yaml")
    (line,) = problems(Toy, file=grandchild)
    assert line.startswith(f"{grandchild}:1: ")
    assert "only one level" in line


def test_an_error_in_the_parent_names_the_parents_line(tmp_path):
    base = write(tmp_path, "\n\nstepz: 1\n", "base.yaml")
    (line,) = problems(Toy, file=write(tmp_path, "extends: base.yaml\nlr: 1\n"))
    assert line.startswith(f"{base}:3: ")
    (line,) = problems(Toy, file=write(tmp_path, "extends: nobody\nlr: 1\n"))
    assert "no recipe 'nobody'" in line


def test_overrides_reach_list_items_and_components():
    recipe = load_recipe(Toy, overrides=["parts.0.weight=2", "parts.1.depth=9", "inner.rate=0.25", "names=[x]", "part.mode=slow"])
    assert recipe.parts[0].config.weight == 2.0
    assert recipe.parts[1].config.depth == 9
    assert (recipe.inner.rate, recipe.names, recipe.part.config.mode) == (0.25, ("x",), "slow")
    assert load_recipe(Toy, overrides=["names.1=z"]).names == ("a", "z")


def test_switching_a_component_starts_from_its_own_defaults(tmp_path):
    path = write(tmp_path, "part: {name: test_one, weight: 5}\n")
    assert load_recipe(Toy, file=path, overrides=["part=test_two"]).part == Component(KIND, "test_two", TwoConfig())
    assert load_recipe(Toy, file=path, overrides=["part.name=test_two", "part.depth=1"]).part.config == TwoConfig(1)
    assert load_recipe(Toy, file=path, overrides=["part.name=test_one"]).part.config.weight == 5.0
    assert load_recipe(Toy, file=path, overrides=["part=test_two", "part=test_one"]).part.config.weight == 1.0


def test_a_later_override_wins():
    assert load_recipe(Toy, overrides=["steps=2", "steps=3"]).steps == 3


def test_defaults_made_by_a_function_are_kept_key_by_key():
    recipe = load_recipe(SftRecipe, overrides=["data.prompt=direct", "validation.max_tokens=7"])
    assert recipe.validation.temperature == SftRecipe().validation.temperature == 0.0
    assert recipe.validation.max_tokens == 7


# --- your own file -----------------------------------------------------------------------------------------------

USER_FILE = '''
from __future__ import annotations
from dataclasses import dataclass
from vtgrl.core.registry import opt, register

@dataclass(frozen=True)
class MineConfig:
    size: int = opt(4, "how large", ge=1)

@register("monitor", "mine_in_a_file", config=MineConfig)
def mine(context, *, config):
    """Mine."""
    return config.size

def plain(context, *, config):
    return "plain"
'''


def test_a_function_of_ones_own_file_is_a_component(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "mine.py").write_text(USER_FILE)
    path = write(tmp_path, "part: {name: code/mine.py:mine, size: 08}\nparts: [code/mine.py:plain]\n")
    recipe = load_recipe(Toy, file=path)
    assert recipe.part(None) == 8
    assert recipe.parts[0](None) == "plain"
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Toy, overrides=["part=code/mine.py:mine"]).part(None) == 4
    dumped = write(tmp_path, dump_recipe(recipe), "elsewhere.yaml")
    monkeypatch.chdir("/")
    assert load_recipe(Toy, file=dumped) == recipe
    lines = problems(Toy, file=write(tmp_path, "part: {name: code/mine.py:mine, size: 0}\nparts: [code/mine.py:nobody, no.py:x]\n"))
    assert "outside its range" in lines[0]
    assert "defines no function nobody" in lines[1]
    assert "no file" in lines[2]


# --- and back ----------------------------------------------------------------------------------------------------

AWKWARD = (
    *("08", "on", "1e-6", "null", "~", "", " x ", "a: b", "# no", "[x]", "'q'", '"'),
    *("é\u2028ü", "tab\there", "line\nline", "{}", "*a", "&a", "!t"),
)
"""Texts that YAML would take for something else."""


def random_recipe(rng: random.Random) -> Toy:
    def text() -> str:
        return rng.choice([rng.choice(AWKWARD), "".join(rng.choices(string.printable.strip() + " ", k=rng.randrange(12)))])

    def component() -> Component:
        if rng.random() < 0.5:
            return Component(KIND, "test_two", TwoConfig(rng.randrange(100)))
        return Component(
            KIND, "test_one", OneConfig(rng.random() * 10 ** rng.randrange(-9, 9), rng.choice(["fast", "slow"]), rng.choice([None, 3]))
        )

    return Toy(
        lr=rng.choice([0.0, 1e-300, 1e-6, 1e22, rng.random(), float("inf")]),
        steps=rng.randrange(1, 10**9),
        on=rng.random() < 0.5,
        title=text(),
        level=rng.choice([0, 1, 2]),
        names=tuple(text() for _ in range(rng.randrange(4))),
        inner=Inner(rng.random(), (rng.uniform(-9, 9), rng.random())),
        part=component(),
        parts=tuple(component() for _ in range(rng.randrange(3))),
    )


def test_a_dumped_recipe_reads_back_equal(tmp_path):
    rng = random.Random(0)
    for _ in range(300):
        recipe = random_recipe(rng)
        assert load_recipe(Toy, file=write(tmp_path, dump_recipe(recipe))) == recipe


# --- keys that have to agree -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["video.max_frames=7"], "video.max_frames: 7 is odd"),
        (["video.max_frames=-2"], "outside its range (>= 2)"),
        (["video.min_frames=16", "video.max_frames=8"], "video.min_frames: 16 is above max_frames = 8"),
        (["video.min_pixels=200", "video.max_pixels=100"], "video.min_pixels: 200 is above max_pixels = 100"),
        (["video.fps=0"], "video.fps = 0 is outside its range (> 0)"),
        (["optim.lr=-1e-6"], "optim.lr = -1e-06 is outside its range (>= 0)"),
        (["zero.stage=2", "zero.offload_params=on"], "zero.offload_params: needs zero.stage=3"),
        (["zero.stage=0"], "zero.stage: 0 with bf16"),
        (["train.val_every=5"], "train.val_every: needs validation rows"),
        (["validation.top_k=0"], "validation.top_k: 0 allows no token"),
    ],
)
def test_nonsense_is_refused_with_its_key(overrides, says):
    (line,) = problems(SftRecipe, overrides=["data.prompt=direct", *overrides])
    assert line.startswith("command line: ")
    assert says in line


def test_reading_recipes_needs_no_torch():
    code = "import sys; from vtgrl.core import doctor, jsonl, recipe, runfolder; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_component_registered_twice_is_an_error():
    def other(*, config):
        """Another."""

    with pytest.raises(ConfigError, match="registered twice"):
        registry.register(KIND, "test_one")(other)
