"""Rewards and losses that tests name by file: `tests/train/rewards.py:fn`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from vtgrl.algo.loss.ppo_clip import PpoClipConfig, ppo_clip
from vtgrl.algo.types import LossInputs, LossOutput
from vtgrl.reward.types import RewardOutput, RewardRow


def token_parity(rows: Sequence[RewardRow], *, config: Any) -> RewardOutput:
    """Share of even token ids: differs within every group of random answers."""
    return RewardOutput(tuple(sum(t % 2 == 0 for t in r.completion.token_ids) / len(r.completion.token_ids) for r in rows))


def broken_for_some(rows: Sequence[RewardRow], *, config: Any) -> RewardOutput:
    """As token_parity, but NaN for every answer with an even first token."""
    good = token_parity(rows, config=config).values
    return RewardOutput(tuple(math.nan if r.completion.token_ids[0] % 2 == 0 else v for r, v in zip(rows, good, strict=True)))


CALLS = {"loss": 0}


def nan_once(inputs: LossInputs, *, config: Any) -> LossOutput:
    """PPO-clip whose second call of three is NaN (a run of three steps makes three)."""
    CALLS["loss"] += 1
    output = ppo_clip(inputs, config=PpoClipConfig())
    bad = torch.full_like(output.loss_NT, math.nan) * inputs.logp_NT
    return LossOutput(bad, output.metrics_NT) if CALLS["loss"] % 3 == 2 else output


def always_nan(inputs: LossInputs, *, config: Any) -> LossOutput:
    """A loss that is never a number."""
    return LossOutput(torch.full_like(inputs.logp_NT, math.nan) * inputs.logp_NT)


def always_broken(rows: Sequence[RewardRow], *, config: Any) -> RewardOutput:
    """A reward that fails on every row."""
    return RewardOutput((math.nan,) * len(rows))
