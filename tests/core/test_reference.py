"""docs/recipes.md is what the code says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_recipe_reference_is_current(tmp_path):
    """In a process of its own: other tests register components of theirs. Mend: python -m vtgrl.core.reference docs/recipes.md"""
    made = tmp_path / "recipes.md"
    subprocess.run([sys.executable, "-m", "vtgrl.core.reference", str(made)], check=True)
    assert (ROOT / "docs" / "recipes.md").read_text() == made.read_text()


def test_the_reference_has_every_key_and_component(tmp_path):
    text = (ROOT / "docs" / "recipes.md").read_text()
    assert "| `optim.lr` | a number | `1e-06` | >= 0 | peak learning rate |" in text
    assert "| `validation.temperature` | a number | `0.0` |" in text
    assert "**grpo**: " in text
    assert "| `weight` | a number | `1.0` |" in text
