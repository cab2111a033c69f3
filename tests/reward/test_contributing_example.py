"""The example of CONTRIBUTING.md works as written: the reward, its test and the recipe are taken from the page and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"

CONFTEST = """
from pathlib import Path

import vtgrl.reward

vtgrl.reward.__path__.append(str(Path(__file__).parent / "reward"))
"""

TEST_RECIPE = """
from pathlib import Path

from vtgrl.core.recipe import load_recipe
from vtgrl.core.registry import get
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Completion, Sample
from vtgrl.reward.compose import score
from vtgrl.reward.types import RewardRow

HERE = Path(__file__).parent
SAMPLE = Sample(id="a", task="vtg", query="he eats", windows=((8.0, 12.0),))
ROW = RewardRow(SAMPLE, Completion((1,), (0.0,), "<think>x</think><answer>8s to 10s</answer>", "stop", 0), "g", 30.0)


def test_recipe():
    recipe = load_recipe(GrpoRecipe, file=HERE / "recipe.yaml")
    assert [c.name for c in recipe.reward] == ["format", "iou", "span_length"]
    iou = 0.5 * (1 - 2 / 30)
    assert abs(score([ROW], recipe.reward).total[0] - (1 + iou + 0.2 * 0.25)) < 1e-9
    assert get("reward", "span_length").summary.startswith("Shorter length")


def test_named_by_file():
    name = f"{HERE}/reward/span_length.py:span_length"
    recipe = load_recipe(GrpoRecipe, overrides=["reward=[{name: '" + name + "', weight: 0.2}]"])
    assert abs(score([ROW], recipe.reward).total[0] - 0.2 * 0.5) < 1e-9
"""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(240)
def test_the_page_is_true(tmp_path: Path) -> None:
    (reward, test), (recipe,) = _blocks("python"), _blocks("yaml")
    (tmp_path / "reward").mkdir()
    files = {
        "reward/span_length.py": reward,
        "test_span_length.py": test,
        "recipe.yaml": recipe,
        "conftest.py": CONFTEST,
        "test_recipe.py": TEST_RECIPE,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PAGE.parent, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
