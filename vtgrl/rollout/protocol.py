"""Rollout engines: who draws the answers. `@register("engine", NAME, config=...) def make(context, *, config) -> RolloutEngine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion
from vtgrl.model.types import Prompt


@dataclass(frozen=True)
class EngineContext:
    """What an engine is made from. `policy` is the vtgrl Policy module (None in a pure evaluation with vLLM);
    `model_path` a folder with config, weights and processor; `max_model_len` prompt + answer tokens."""

    model_path: str
    policy: Any
    builder: Any
    dtype: str
    max_model_len: int
    rank: int = 0
    world_size: int = 1
    seed: int = 0


Prefixes = Sequence[Sequence[tuple[int, ...]]]
"""`prefixes[i][m]`: ids that answer m to prompt i begins with; `()`: none."""


class RolloutEngine(Protocol):
    """Calls are collective: every rank calls them in the same order, each with its own prompts (possibly none)."""

    version: int
    """Optimizer step whose weights the engine holds."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        sampling: SamplingConfig,
        seed: int,
        version: int,
        prefixes: Prefixes | None = None,
    ) -> list[list[Completion]]:
        """n completions a prompt. The draw depends on (context.seed, seed, prompt id, member), not on the batch split or the
        rank; callers put the step into `seed`. A log-prob that the engine could not give is NaN.

        An answer with a prefix holds it: `token_ids` and `text` begin with it, `max_tokens` counts it, `given` says how long it
        is. The ids are used as they are, never as text, so trainer and engine see the same ones; text of prompt and prefix
        together could be cut into other tokens where they meet.

        Raises:
            RunError: the engine's weights are not those of `version`.
            DataError: a prefix leaves no room for an answer; names the row.
        """

    def publish(self, policy: Any, *, version: int) -> None:
        """Take the policy's weights (gathered in buckets under ZeRO-3)."""

    def close(self) -> None:
        """Free memory and processes."""
