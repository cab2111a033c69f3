"""TaRO's constructive reasoning exploration (arXiv:2606.09248): first go on from dense captions, then explore freely.

During the warm-up an answer begins with a thought made of the clip's captions: of n captions k ~ U{1..n}, which k uniformly, in
order of time, thinking left open; the policy goes on, closes the thought and answers. The true window chooses nothing: the reward
does. Every answer of a group draws its own subset, from (seed, step, sample, copy, member) alone.

Other than published, each with its reason:
- the schedule ends after `warmup_epochs` whatever its shape (theirs: the linear one always ends with the first epoch);
- a prefix has a budget, and captions are dropped, the last drawn first, until it fits (theirs can fill the whole answer);
- `group_share` keeps some answers of a group free: a group whose prefixes all fail still has something to compare.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vtgrl.algo.curriculum.types import CurriculumInputs, CurriculumOutput, Opening, Prefix
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import opt, register
from vtgrl.core.seeds import derive_seed

FREE = Prefix()


@dataclass(frozen=True)
class ImitateThenExploreConfig:
    """Settings of the caption prefixes."""

    warmup_epochs: float = opt(1.0, "passes over the data during which answers may have a prefix; afterwards all are free", ge=0)
    schedule: Literal["const", "linear", "cosine"] = opt("const", "how the probability goes from `p` to 0 over the warm-up")
    p: float = opt(1.0, "probability that an answer gets a prefix when the warm-up begins", ge=0, le=1)
    group_share: float = opt(
        0.75, "at most this share of a group's answers has a prefix, the others are free to compare with; 1: as published", gt=0, le=1
    )
    budget: float = opt(0.5, "share of max_tokens that a prefix may take: captions are dropped until it fits", gt=0, lt=1)


@register("curriculum", "imitate_then_explore", config=ImitateThenExploreConfig, paper="arXiv:2606.09248", needs=("openings",))
def imitate_then_explore(inputs: CurriculumInputs, *, config: ImitateThenExploreConfig) -> CurriculumOutput:
    """Answers begin with a random part of the clip's captions during a warm-up, and are free afterwards (TaRO).

    Raises:
        ConfigError: `group_share` leaves no answer of a group to prefix.
    """
    most = math.floor(config.group_share * inputs.members + 1e-9)
    if not most:
        raise ConfigError(
            f"curriculum.group_share: {config.group_share:g} of rollout.n = {inputs.members} answers is less than one; raise either"
        )
    p = probability(inputs.epoch, config)
    return CurriculumOutput(tuple(_group(opening, inputs, config, p=p, most=most) for opening in inputs.openings), p)


def probability(epoch: float, config: ImitateThenExploreConfig) -> float:
    """That an answer gets a prefix when `epoch` passes over the data are done; 0 once the warm-up is over."""
    if epoch >= config.warmup_epochs:
        return 0.0
    done = epoch / config.warmup_epochs
    shape = {"const": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
    return config.p * shape[config.schedule]


def _group(opening: Opening, inputs: CurriculumInputs, config: ImitateThenExploreConfig, *, p: float, most: int) -> tuple[Prefix, ...]:
    """One prefix a member. Of more than `most` that drew one, those with the lowest numbers keep it."""
    if not opening.lines or not p:
        return (FREE,) * inputs.members
    parts = ("curriculum", inputs.seed, inputs.step, opening.sample_id, opening.copy)
    dice = [np.random.default_rng(derive_seed(*parts, member)) for member in range(inputs.members)]
    number = [float(die.random()) for die in dice]
    lowest = sorted(range(inputs.members), key=number.__getitem__)[:most]
    chosen = {member for member in lowest if number[member] < p}
    budget = int(config.budget * inputs.max_tokens)
    return tuple(_prefix(opening, inputs, dice[m], budget=budget) if m in chosen else FREE for m in range(inputs.members))


def _prefix(opening: Opening, inputs: CurriculumInputs, die: np.random.Generator, *, budget: int) -> Prefix:
    """As many of the drawn lines as fit; an answer is free when not even one does."""
    count = int(die.integers(1, len(opening.lines) + 1))
    drawn = [int(i) for i in die.permutation(len(opening.lines))[:count]]
    for size in range(count, 0, -1):
        lines = tuple(sorted(drawn[:size]))
        ids = inputs.encode("\n".join([opening.text, *(opening.lines[i] for i in lines)]))
        if len(ids) <= budget:
            return Prefix(ids, lines, count - size)
    return Prefix(left_out=count)
