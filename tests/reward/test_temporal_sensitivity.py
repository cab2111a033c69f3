"""The temporal-sensitivity reward on given d."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from vtgrl.core.registry import get
from vtgrl.core.types import Completion, Sample
from vtgrl.reward.compose import score
from vtgrl.reward.temporal_sensitivity import D
from vtgrl.reward.types import RewardOutput, RewardRow

RIGHT, NEAR, WRONG = "<answer>8s to 12s</answer>", "<answer>8s to 11s</answer>", "<answer>1s to 2s</answer>"  # IoU 1, 0.75, 0


def row(d: float | None, answer: str = RIGHT, *, group: str = "g", task: str = "vtg", duration: float = 30.0) -> RewardRow:
    sample = Sample(id="a", task=task, query="he eats", windows=((8.0, 12.0),) if task == "vtg" else ())  # type: ignore[arg-type]
    return RewardRow(sample, Completion((1,), (0.0,), answer, "stop", 0), group, duration, {} if d is None else {D: d})


def run(rows: Sequence[RewardRow], **config: Any) -> RewardOutput:
    entry = get("reward", "temporal_sensitivity")
    assert entry.needs == {"probe:boundary_shuffle"}
    output: RewardOutput = entry.fn(rows, config=entry.config(**config))
    return output


def pays(values: Sequence[float | None], **config: Any) -> list[float | None]:
    return list(run([row(d) for d in values], **config).values)


def test_exactly_the_first_seven() -> None:
    """T1: the release read the last row's d for all rows, and paid nobody, or everybody."""
    assert pays([0.9] * 7 + [0.1]) == [0.3] * 7 + [0.0]
    assert pays([0.1] + [0.9] * 7) == [0.0] + [0.3] * 7


@pytest.mark.parametrize("size", [4, 6])
def test_other_group_sizes(size: int) -> None:
    """T2: eight a group was hard-coded."""
    rows = [row(float(i), group=g) for g in "ab" for i in range(size)]
    half = [0.0] * (size // 2) + [0.3] * (size // 2)
    assert list(run(rows).values) == half * 2


def test_ragged_groups_in_any_order() -> None:
    rows = [row(0.1, group="a"), row(5.0, group="b"), row(0.3, group="a"), row(7.0, group="b"), row(6.9, group="b"), row(9.0, group="c")]
    assert run(rows).values == (0.0, 0.0, 0.3, 0.3, 0.3, 0.0)
    assert run(rows[::-1]).values == (0.0, 0.0, 0.3, 0.3, 0.3, 0.0)[::-1]


@pytest.mark.parametrize("d", [0.1, 1 / 3, 1e-6, 0.7, -0.3])
@pytest.mark.parametrize("size", [3, 7, 8])
def test_equal_d_pays_nobody(d: float, size: int) -> None:
    """T8: a mean that is rounded twice lies below some of these, and would pay all of them."""
    assert pays([d] * size) == [0.0] * size
    assert pays([d] * size, threshold="leave_one_out") == [0.0] * size
    assert pays([d] * size, threshold="constant", constant=d) == [0.0] * size


def test_thresholds() -> None:
    d = [0.0, 0.4, 0.5, 0.9]  # mean 0.45
    assert pays(d) == [0.0, 0.0, 0.3, 0.3]
    assert pays(d, margin=0.1) == [0.0, 0.0, 0.0, 0.3]
    assert pays(d, threshold="constant", constant=0.3) == [0.0, 0.3, 0.3, 0.3]
    assert pays(d, threshold="constant", constant=0.3, margin=0.1) == [0.0, 0.0, 0.3, 0.3]
    assert pays([0.0, 0.5, 0.6], threshold="leave_one_out") == [0.0, 0.3, 0.3]  # means of the others: 0.55, 0.3, 0.25
    assert pays([0.7], threshold="leave_one_out") == [0.0]  # nobody to compare with
    assert pays([0.7]) == [0.0]


def test_only_right_answers_are_paid_but_all_set_the_threshold() -> None:
    rows = [row(0.9, RIGHT), row(0.9, NEAR), row(0.9, WRONG), row(0.9, "I do not know"), row(0.1, RIGHT)]
    assert run(rows).values == (0.3, 0.3, 0.0, 0.0, 0.0)
    assert run(rows, tau=0.8).values == (0.3, 0.0, 0.0, 0.0, 0.0)
    assert run(rows, tau=0.75, alpha=1.5).values == (1.5, 1.5, 0.0, 0.0, 0.0)
    assert run(rows, form="time_r1").values == (0.0,) * 5  # reads no `8s`
    assert run(rows).means == {"above": [1.0, 1.0, 1.0, 1.0, 0.0]}


def test_rows_without_d_and_rows_that_failed() -> None:
    rows = [row(0.9), row(None), row(math.nan), row(math.inf), row(0.1), row(0.9, task="qa"), row(0.9, duration=0.0)]
    values = run(rows).values
    assert (values[0], values[1], values[4], values[5]) == (0.3, None, 0.0, None)
    assert all(v is not None and math.isnan(v) for v in (values[2], values[3], values[6]))
    assert len(run(rows).means["above"]) == 4
    assert run([row(None)] * 3).values == (None,) * 3
    assert run([]).values == ()


def test_a_row_without_d_keeps_its_other_rewards() -> None:
    table = score([row(0.9), row(None), row(0.1)], [get_component("iou"), get_component("temporal_sensitivity")])
    assert table.total == (1.3, 1.0, 1.0)
    assert table.metrics["reward/temporal_sensitivity/absent"] == 1.0
    assert table.means["reward/temporal_sensitivity/above"] == (1.0, 2)


def get_component(name: str) -> Any:
    from vtgrl.core.registry import Component

    config = {"shape": "iou"} if name == "iou" else {}
    return Component("reward", name, get("reward", name).config(**config))
