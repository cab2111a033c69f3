"""Learning-rate schedules by hand values."""

from __future__ import annotations

import pytest

from vtgrl.core.schema import OptimConfig
from vtgrl.train.engine_ds import lr_at


def rates(steps: int, **settings: object) -> list[float]:
    optim = OptimConfig(lr=1.0, **settings)  # type: ignore[arg-type]
    return [lr_at(s, optim=optim, total_steps=steps) for s in range(steps)]


def test_constant() -> None:
    assert rates(3) == [1.0, 1.0, 1.0]


def test_warmup_reaches_the_peak_and_never_starts_at_zero() -> None:
    assert rates(5, warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_linear_falls_from_the_peak() -> None:
    assert rates(4, schedule="linear") == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    assert rates(4, schedule="cosine")[2] == pytest.approx(0.5)


def test_warmup_longer_than_the_run() -> None:
    assert rates(2, warmup_steps=10, schedule="cosine") == pytest.approx([0.1, 0.2])
