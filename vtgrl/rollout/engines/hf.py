"""`hf`: draws answers with the Hugging Face model itself. Always there, exact, on any device; vLLM is faster on long ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from vtgrl.core.registry import opt, register
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion
from vtgrl.model.types import Prompt
from vtgrl.rollout.decode import Decoder, Drawn
from vtgrl.rollout.held import HeldWeights
from vtgrl.rollout.limits import answer_limit, member_prefixes
from vtgrl.rollout.protocol import EngineContext, Prefixes
from vtgrl.rollout.seeds import prompt_seeds
from vtgrl.rollout.sync import is_sharded
from vtgrl.rollout.twin import Twin

MIB = 1 << 20


@dataclass(frozen=True)
class HfConfig:
    """Settings of the Hugging Face engine."""

    kv_tokens: int = opt(
        131072, "tokens in the KV cache of what is decoded together: prompts (once each) and their longest answers; a group is never split"
    )
    bucket_mb: int = opt(512, "ZeRO-3: weights gathered at a time when they are published, in MiB")


@register("engine", "hf", config=HfConfig)
def make(context: EngineContext, *, config: HfConfig) -> HfEngine:
    """The Hugging Face model itself draws the answers: needs nothing beside transformers."""
    return HfEngine(context, config=config)


class HfEngine:
    """The engine. It holds `context.policy` as it is when made (version 0); under ZeRO-3 a whole copy of it, so making
    one and publishing are collective, generating is not."""

    def __init__(self, context: EngineContext, *, config: HfConfig) -> None:
        assert context.policy is not None, "the hf engine draws from a loaded policy"
        self.context = context
        self.config = config
        self.held = HeldWeights()
        self._twin: Twin | None = None
        self._model: nn.Module = self._take(context.policy)

    @property
    def version(self) -> int:
        """Optimizer step whose weights the engine holds."""
        return self.held.version

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
        """n completions a prompt; the same whatever prompts are asked for together.

        Raises:
            RunError: the engine's weights are not those of `version`.
            DataError: a prompt, or a prefix, leaves no room for an answer.
        """
        self.held.require(version)
        limits = [answer_limit(p, sampling=sampling, max_model_len=self.context.max_model_len) for p in prompts]
        seeds = prompt_seeds(prompts, run_seed=self.context.seed, seed=seed)
        members = 1 if sampling.temperature == 0.0 and prefixes is None else n
        asked = prefixes or [None] * len(prompts)
        given = [member_prefixes(p, g, n=members, limit=limit) for p, g, limit in zip(prompts, asked, limits, strict=True)]
        found: dict[int, list[Completion]] = {}
        with evaluating(self._model):
            decoder = Decoder(self._model, self.context.builder.family, eos_ids=frozenset(self.context.builder.eos_ids))
            for batch in batches([len(p.input_ids) for p in prompts], limits, members, self.config.kv_tokens):
                chosen = ([items[i] for i in batch] for items in (prompts, limits, seeds, given))
                drawn = decoder.answers(*chosen, n=members, sampling=sampling)
                found.update((i, [self._completion(d) for d in group]) for i, group in zip(batch, drawn, strict=True))
        return [found[i] * (n // members) for i in range(len(prompts))]

    def publish(self, policy: Any, *, version: int) -> None:
        """Take the policy's weights (collective under ZeRO-3; else the policy's own memory is used, nothing is copied)."""
        self._model = self._take(policy)
        self.held.published(version, policy=policy)

    def close(self) -> None:
        """Free the copy (the policy itself stays)."""
        self._twin = None
        self._model = self.context.policy.hf

    def _take(self, policy: Any) -> nn.Module:
        if not is_sharded(policy.hf):
            return policy.hf
        if self._twin is None:
            self._twin = Twin(policy)
        self._twin.fill(policy, bucket_bytes=self.config.bucket_mb * MIB, trained_only=self.held.partial(policy))
        return self._twin.model

    def _completion(self, drawn: Drawn) -> Completion:
        return Completion(
            token_ids=drawn.token_ids,
            logprobs=drawn.logprobs,
            text=self.context.builder.decode(drawn.token_ids),
            finish="stop" if drawn.stopped else "length",
            policy_version=self.version,
            given=drawn.given,
        )


def batches(lengths: Sequence[int], limits: Sequence[int], n: int, kv_tokens: int) -> list[list[int]]:
    """Prompt indices that are decoded together, similar lengths side by side. All n answers of a prompt stay together.

    Example: batches([10, 500, 12], [40, 40, 40], 2, 300) == [[0, 2], [1]]
    """
    out: list[list[int]] = []
    answer = 0
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        answer = max(answer, limits[index])
        if not out or (len(out[-1]) + 1) * (lengths[index] + n * answer) > kv_tokens:
            out.append([])
            answer = limits[index]
        out[-1].append(index)
    return out


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout and gradient checkpointing off inside; every module's own flag is put back (frozen parts may differ)."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
