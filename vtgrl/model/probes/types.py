"""What a probe is.

`@register("probe", NAME, config=...) def f(prompt: Prompt, *, config, seed: int) -> Probed`: the prompt with other pixels.
Token ids and positions stay, so the same answers can be scored once more; the trainer does it (`vtgrl/train/probes.py`) and
hands each answer's mean difference of log-probs to the rewards that declare `needs=("probe:NAME",)`. The config is a
`vtgrl.core.probes.ProbeConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.model.types import Prompt


@dataclass(frozen=True, eq=False)
class Probed:
    """prompts: the same prompt with other pixels, one or several times (their log-probs are averaged); none when the probe
    does not apply, and `skipped` then says why, in a word. coverage: share of the clip's frames that differ."""

    prompts: tuple[Prompt, ...] = ()
    coverage: float = 0.0
    skipped: str = ""
