"""What a probe is.

`@register("probe", NAME, config=...) def f(prompt: Prompt, *, config, seed: int) -> Probed`: the prompt with other pixels.
Token ids and positions stay, so the same answers can be scored once more; the trainer does it (`vtgrl/train/probes.py`) and
hands each answer's mean difference of log-probs to whatever asked for it with `needs=("probe:NAME",)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt
from vtgrl.model.types import Prompt


@dataclass(frozen=True)
class ProbeConfig:
    """Base of every probe's config: how answers are compared."""

    tokens: Literal["own_reasoning", "reasoning", "all"] = opt(
        "own_reasoning",
        "tokens that are averaged. own_reasoning: inside the think block, without a prefix that a curriculum gave; reasoning: "
        "with it; all: the whole answer, tags and end token too, as TaRO's release does",
    )
    baseline: Literal["sampler", "trainer"] = opt(
        "sampler",
        "log-probs under the true clip. sampler: the engine's own from the rollout, at no cost; they differ from the trainer's "
        "by what rollout/logp_diff_mean shows (1e-6 in fp32, 1e-2 in bf16). trainer: the same kernels as the probe's pass, for "
        "one more forward pass a step, or none when algo.updates or a KL reward needs that pass anyway",
    )


@dataclass(frozen=True, eq=False)
class Probed:
    """prompts: the same prompt with other pixels, one or several times (their log-probs are averaged); none when the probe
    does not apply, and `skipped` then says why, in a word. coverage: share of the clip's frames that differ."""

    prompts: tuple[Prompt, ...] = ()
    coverage: float = 0.0
    skipped: str = ""
