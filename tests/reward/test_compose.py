"""Composition: a reward that is absent or fails on one row never touches another row (public fault 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from vtgrl.core.errors import RunError
from vtgrl.core.registry import Component, NoConfig, get, names, register
from vtgrl.core.types import Completion, Sample
from vtgrl.reward.compose import score
from vtgrl.reward.format import FormatConfig
from vtgrl.reward.iou import IouConfig
from vtgrl.reward.types import RewardConfig, RewardOutput, RewardRow

VALUES: dict[str, list[object]] = {}


def _rows(n: int, text: str = "<think>a</think><answer>8.5 to 12.4</answer>") -> list[RewardRow]:
    sample = Sample(id="a", task="vtg", query="q", windows=((8.5, 12.4),))
    return [RewardRow(sample, Completion((1,), (0.0,), text, "stop", 0), "g", 30.0) for _ in range(n)]


def _given(name: str, values: list[object]) -> Component:
    """A registered reward that returns `values`."""
    VALUES[name] = values
    if name not in names("reward"):

        @register("reward", name, config=RewardConfig)
        def given(rows: Sequence[RewardRow], *, config: RewardConfig) -> RewardOutput:
            """Fixed values."""
            return RewardOutput(tuple(VALUES[name]))  # type: ignore[arg-type]

    return Component("reward", name, RewardConfig(weight=1.0))


def test_weighted_sum_and_metrics() -> None:
    rows = [*_rows(2), *_rows(1, "no")]
    table = score(rows, [Component("reward", "format", FormatConfig(weight=0.5)), Component("reward", "iou", IouConfig(weight=2.0))])
    assert table.total == (2.5, 2.5, 0.0)
    assert table.per_reward == {"format": (1.0, 1.0, 0.0), "iou": (1.0, 1.0, 0.0)}
    assert table.metrics["reward/iou/parse/ok"] == 2.0
    assert table.metrics["reward/iou/parse/none"] == 1.0
    assert table.metrics["reward/format/failed"] == 0.0


def test_absent_and_failed_values_stay_in_their_row() -> None:
    a, b = _given("given_a", [1.0, None, math.nan, None, math.inf, 3.0]), _given("given_b", [1.0, 2.0, 2.0, None, 2.0, True])
    table = score(_rows(6), [a, b])
    assert table.total[0] == 2.0
    assert table.total[1] == 2.0  # absent: the other one counts
    assert [math.isnan(t) for t in table.total] == [False, False, True, True, True, False]
    assert table.total[5] == 4.0
    assert table.metrics["reward/given_a/absent"] == 2.0
    assert table.metrics["reward/given_a/failed"] == 2.0


def test_a_row_without_any_reward_has_no_total() -> None:
    table = score(_rows(2), [_given("given_c", [None, math.nan])])
    assert all(math.isnan(t) for t in table.total)
    assert table.metrics == {"reward/given_c/absent": 1.0, "reward/given_c/failed": 1.0}


def test_numbers_for_the_log_can_be_added_up_over_ranks() -> None:
    """Means come as sum and count: ranks may hold different numbers of rows, or none."""
    if "given_e" not in names("reward"):

        @register("reward", "given_e")
        def given_e(rows: Sequence[RewardRow], *, config: NoConfig) -> RewardOutput:
            """Numbers of rows."""
            return RewardOutput((1.0,) * len(rows), metrics={"long": 2.0}, means={"d": [0.5, 1.5, 4.0][: len(rows)]})

    for rows, wanted in ((3, (6.0, 3)), (0, (0.0, 0))):
        table = score(_rows(rows), [Component("reward", "given_e", NoConfig())])
        assert table.means == {"reward/given_e/d": wanted}
        assert table.metrics["reward/given_e/long"] == 2.0


@pytest.mark.parametrize(
    ("values", "message"),
    [([1.0], "returned 1 values for 2 rows"), ([1.0, "x"], "sample 'a': 'x' is not a number")],
)
def test_wrong_output_names_reward_and_row(values: list[object], message: str) -> None:
    with pytest.raises(RunError, match=message):
        score(_rows(2), [_given("given_d", values)])


FILE_REWARD = """
from dataclasses import dataclass
from vtgrl.core.registry import opt, register
from vtgrl.reward.types import RewardConfig, RewardOutput

def plain(rows, *, config):
    return RewardOutput(tuple(float(len(r.completion.text)) for r in rows))

def wrong(rows, *, config):
    return [1.0 for _ in rows]
"""


def test_reward_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my_reward.py"
    file.write_text(FILE_REWARD, encoding="utf-8")
    component = Component("reward", f"{file}:plain", NoConfig())
    table = score(_rows(2, "abc"), [component, component, Component("reward", "iou", IouConfig())])
    assert table.total == (6.0, 6.0)
    assert list(table.per_reward) == ["plain", "plain#2", "iou"]
    with pytest.raises(RunError, match="return RewardOutput"):
        score(_rows(1), [Component("reward", f"{file}:wrong", NoConfig())])


def test_built_in_rewards_are_listed_with_a_summary() -> None:
    assert {"format", "iou"} <= set(names("reward"))
    for name in ("format", "iou"):
        assert get("reward", name).summary
        assert get("reward", name).paper.startswith("arXiv:")
