"""Numbers of the rewards for the log, over ranks that hold different rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from vtgrl.reward.types import RewardTable
from vtgrl.train.grpo import reward_metrics
from vtgrl.train.world import World


class Fake(World):
    """A rank that always hears the same of one other."""

    def gather(self, value: Any) -> list[Any]:
        return [value, self.__dict__["other"].pop(0)]


def both(mine: RewardTable, other: RewardTable) -> dict[str, float]:
    spoken: list[Any] = []

    class Spy(World):
        def gather(self, value: Any) -> list[Any]:
            spoken.append(value)
            return [value]

    reward_metrics(other, Spy(1, 2, torch.device("cpu")))
    fake = Fake(0, 2, torch.device("cpu"))
    fake.__dict__["other"] = spoken
    return reward_metrics(mine, fake)


def test_means_and_counts_over_ranks() -> None:
    mine = RewardTable((1.0, math.nan, 4.0), {"iou": (1.0, math.nan, 0.0)}, {"reward/iou/parse/ok": 2.0}, {"reward/x/above": (1.0, 4)})
    other = RewardTable((7.0,), {"iou": (0.5,)}, {"reward/iou/parse/none": 1.0}, {"reward/x/above": (1.0, 1)})
    nobody = RewardTable((), {"iou": ()}, {}, {})
    found = both(mine, other)
    assert found["reward/total"] == pytest.approx(4.0)
    assert found["reward/iou"] == pytest.approx(0.5)
    assert found["reward/missing"] == 1.0
    assert (found["reward/iou/parse/ok"], found["reward/iou/parse/none"]) == (2.0, 1.0)
    assert found["reward/x/above"] == pytest.approx(0.4)  # not the mean of 0.25 and 1
    assert both(nobody, nobody) == {"reward/total": 0.0, "reward/iou": 0.0, "reward/missing": 0.0}
    assert both(nobody, other)["reward/total"] == 7.0
