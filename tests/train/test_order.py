"""Data order: a pure function of the data seed (public fault 65), no row dropped, resume needs no state."""

from __future__ import annotations

from collections import Counter

import pytest

from vtgrl.train.order import DataOrder


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
