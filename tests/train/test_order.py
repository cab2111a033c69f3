"""Data order: a pure function of the data seed (public fault 65), no row dropped, resume needs no state."""

from __future__ import annotations

from collections import Counter

import pytest

from vtgrl.core.schema import OptimConfig
from vtgrl.train.engine_ds import lr_at
from vtgrl.train.order import DataOrder, EpochOrder


def drawn(order: DataOrder) -> list[int]:
    return [i for step in range(order.total_steps) for i in order.batch_at(step)]


@pytest.mark.parametrize(("rows", "batch", "epochs"), [(10, 4, 3), (7, 7, 2), (3, 8, 1), (5, 2, 4)])
def test_every_row_is_drawn_once_a_pass(rows: int, batch: int, epochs: int) -> None:
    order = DataOrder(rows, batch, seed=3, epochs=epochs)
    all_rows = drawn(order)
    assert Counter(all_rows) == dict.fromkeys(range(rows), epochs)
    for epoch in range(epochs):
        assert sorted(all_rows[epoch * rows : (epoch + 1) * rows]) == list(range(rows))


def test_steps_override_epochs() -> None:
    order = DataOrder(10, 4, seed=0, epochs=1, steps=9)
    assert order.total_steps == 9
    assert len(drawn(order)) == 36


def test_order_depends_on_the_data_seed_only() -> None:
    assert drawn(DataOrder(50, 5, seed=1, epochs=2)) == drawn(DataOrder(50, 5, seed=1, epochs=2))
    assert drawn(DataOrder(50, 5, seed=1, epochs=2)) != drawn(DataOrder(50, 5, seed=2, epochs=2))


def test_passes_are_shuffled_anew() -> None:
    rows = drawn(DataOrder(50, 50, seed=1, epochs=2))
    assert rows[:50] != rows[50:]


def epochs(order: EpochOrder, *sets: list[int], shuffle: bool = False) -> EpochOrder:
    for rows in sets:
        order.add(rows, shuffle=shuffle)
    return order


def test_an_epoch_ends_with_its_last_batch() -> None:
    """10 rows, 3 rows, 4 rows in batches of 4: 3 + 1 + 1 steps; none straddles two epochs."""
    order = epochs(EpochOrder(10, 4, seed=0, epochs=3), list(range(10)), [7, 2, 5], [1, 3, 8, 9])
    assert [order.batch_at(step) for step in range(6)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [7, 2, 5], [1, 3, 8, 9], []]
    assert [order.epoch(step) for step in (0, 1, 3, 4, 5)] == [0, pytest.approx(1 / 3), 1, 2, 3]
    assert [order.finished(step) for step in range(6)] == [False] * 5 + [True]


def test_rows_are_wanted_when_a_further_epoch_begins() -> None:
    order = epochs(EpochOrder(4, 2, seed=0, epochs=2), [0, 1, 2, 3])
    assert [order.wants_rows(step) for step in range(3)] == [False, False, True]
    assert order.batch_at(2) == []
    epochs(order, [3])
    assert [order.wants_rows(step) for step in range(4)] == [False] * 4
    assert order.finished(3)


def test_a_stopped_run_ends_with_the_epoch() -> None:
    order = epochs(EpochOrder(4, 2, seed=0, epochs=9), [0, 1, 2, 3])
    order.stop()
    assert [order.finished(step) for step in range(3)] == [False, False, True]
    assert not order.wants_rows(2)


def test_a_number_of_steps_is_exact() -> None:
    order = epochs(EpochOrder(4, 2, seed=0, epochs=1, steps=3), [0, 1, 2, 3], [2, 0, 1])
    assert order.total_steps == 3
    assert [order.finished(step) for step in range(4)] == [False, False, False, True]
    assert (order.batch_at(2), order.batch_at(3)) == ([2, 0], [])
    assert [order.position(step) for step in range(3)] == [0, 1, 2]


def test_schedules_go_through_all_epochs_however_short() -> None:
    """Whole first epoch: the step itself, exactly. Later ones: faster, and the last step of a linear decay is its last."""
    order = epochs(EpochOrder(30, 1, seed=0, epochs=3), list(range(30)), [1, 2], list(range(15)))
    assert [order.position(step) for step in range(31)] == list(range(31))
    assert [order.position(step) for step in (31, 32, 33, 47)] == [45, 60, 62, 90]
    assert order.total_steps == 90
    optim = OptimConfig(lr=1.0, schedule="linear", warmup_steps=0)
    rates = [lr_at(order.position(step), optim=optim, total_steps=order.total_steps) for step in range(47)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(2 / 90)


def test_an_epoch_is_shuffled_by_seed_and_number() -> None:
    rows = list(range(50))
    one = epochs(EpochOrder(50, 50, seed=1, epochs=3), rows, rows, shuffle=True)
    assert one.sets[0] != one.sets[1]
    assert sorted(one.sets[1]) == rows
    assert one.sets == epochs(EpochOrder(50, 50, seed=1, epochs=3), rows, rows, shuffle=True).sets
    assert list(one.sets[0]) == DataOrder(50, 50, seed=1, epochs=1).batch_at(0)  # as without a filter


def test_a_warm_up_that_ends_inside_a_short_epoch_never_passes_the_peak() -> None:
    optim = OptimConfig(lr=1.0, warmup_steps=10)
    assert max(lr_at(step / 7, optim=optim, total_steps=90) for step in range(300)) == 1.0
