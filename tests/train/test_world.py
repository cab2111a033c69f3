"""Collectives of the loop on two real ranks: sums, shards, and a disagreement that every rank reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.kit import run_ranks

SCRIPT = """
from vtgrl.core.errors import RunError
from vtgrl.train.world import join_world

world = join_world()
assert world.size == 2
assert world.sum({"a": 1.0 + world.rank, f"only{world.rank}": 5.0}) == {"a": 3.0, "only0": 5.0, "only1": 5.0}
assert world.max(world.rank) == 1
assert world.shard([0, 1, 2, 3, 4]) == ([0, 2, 4] if world.rank == 0 else [1, 3])
assert world.broadcast(world.rank) == 0
world.agree("the recipe", "same")
try:
    world.agree("the recipe", f"recipe {world.rank}")
except RunError as error:
    assert "ranks disagree on the recipe: rank 1" in str(error), error
    print("raised", world.rank)
"""


@pytest.mark.timeout(120)
def test_two_ranks(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT)
    outputs = run_ranks(script, ranks=2)
    assert [f"raised {r}" in out for r, out in enumerate(outputs)] == [True, True]
