"""Which probes a recipe runs, and how their settings are given.

A reward that wants one declares `needs=("probe:NAME",)`; the recipe's `probes` sets it, else its defaults hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vtgrl.core import registry
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import Component, opt

PREFIX = "probe:"


@dataclass(frozen=True)
class ProbeConfig:
    """Base of every probe's config: how the answers' log-probs under the true and the probed clip are compared."""

    tokens: Literal["own_reasoning", "reasoning", "all"] = opt(
        "own_reasoning",
        "tokens that are averaged. own_reasoning: inside the think block, without what a curriculum gave; reasoning: with it; "
        "all: the whole answer, tags and end token too, as TaRO's release does",
    )
    baseline: Literal["sampler", "trainer"] = opt(
        "sampler",
        "log-probs under the true clip. sampler: the engine's own, free; off from the trainer's by rollout/logp_diff_mean (1e-6 in "
        "fp32, about 1e-2 in bf16), much the same for all answers of a group. trainer: from the kernels that the probe runs on, for "
        "one more forward pass a step; no extra pass when algo.updates, algo.epochs or a KL reward has it made anyway",
    )


def signal(name: str) -> str:
    """Key of a probe's number in `RewardRow.signals`, and what a reward declares in `needs`."""
    return PREFIX + name


def needed_probes(rewards: Sequence[Component], settings: Sequence[Component]) -> tuple[Component, ...]:
    """The probes that `rewards` ask for, each once, with their settings.

    Raises:
        ConfigError: a reward needs something that is not a probe, or a probe that does not exist.
    """
    wanted: dict[str, Component] = {}
    for reward in rewards:
        for need in sorted(reward.entry().needs):
            if not need.startswith(PREFIX):
                raise ConfigError(f"reward {reward.name!r} needs {need!r}: rewards can need probes only, as 'probe:NAME'")
            name = need.removeprefix(PREFIX)
            wanted[name] = Component("probe", name, registry.get("probe", name).config())
    return tuple({component.name: component for component in (*wanted.values(), *settings) if component.name in wanted}.values())


def setting_problems(rewards: Sequence[Component], settings: Sequence[Component]) -> Iterator[str]:
    """What is wrong with the list of settings itself."""
    names = [component.name for component in settings]
    wanted = {component.name for component in needed_probes(rewards, settings)}
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{name!r} is set {names.count(name)} times; keep one"
        if name not in wanted:
            yield f"no reward of this recipe needs {name!r}; remove it, or add a reward that reads it (with weight: 0 it is only logged)"
