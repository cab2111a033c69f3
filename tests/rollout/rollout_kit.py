"""Policies, prompts from generated videos, engines and the trainer's scores for the tests of the rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vtgrl.core import registry
from vtgrl.core.registry import Component
from vtgrl.core.schema import LoraConfig, SamplingConfig, VideoConfig
from vtgrl.core.types import Completion, Sample
from vtgrl.model.load import LoadedModel, load_model
from vtgrl.model.prompting import PromptBuilder
from vtgrl.model.types import PackedGroup, Prompt
from vtgrl.rollout.parity import compare
from vtgrl.rollout.protocol import EngineContext, RolloutEngine

VLMS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
FAMILIES = (*VLMS, "text")
MAX_MODEL_LEN = 400
SAMPLING = SamplingConfig(temperature=1.0, max_tokens=16)


@dataclass(frozen=True)
class Kit:
    """One tiny model, its prompt builder and prompts."""

    loaded: LoadedModel
    builder: PromptBuilder
    prompts: tuple[Prompt, ...]
    folder: Path

    @property
    def policy(self) -> Any:
        return self.loaded.policy

    def engine(self, name: str, *, rank: int = 0, world_size: int = 1, seed: int = 0, **settings: Any) -> RolloutEngine:
        entry = registry.get("engine", name)
        context = EngineContext(str(self.folder), self.policy, self.builder, "fp32", MAX_MODEL_LEN, rank, world_size, seed)
        engine: RolloutEngine = entry.fn(context, config=entry.config(**settings))
        return engine

    def shake(self, scale: float = 0.02, seed: int = 1) -> None:
        """Change every weight that trains a little, as an optimizer step would."""
        g = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for param in (p for p in self.policy.hf.parameters() if p.requires_grad):
                param.add_(scale * torch.randn(param.shape, generator=g))


def load_kit(
    folder: Path,
    world: Path | None,
    *,
    like: Kit | None = None,
    lora: LoraConfig | None = None,
    freeze: Sequence[str] = (),
    count: int = 3,
) -> Kit:
    """`world`: folder of generated clips, None for a text model. `like`: take builder and prompts from there.

    Clips are cut to different lengths, so prompts have different lengths and the clips different frame rates.
    """
    loaded = load_model(folder, dtype="fp32", lora=lora, freeze=freeze)
    if like is not None:
        return Kit(loaded, like.builder, like.prompts, folder)
    builder = PromptBuilder(
        processor=loaded.processor,
        family=loaded.family,
        config=loaded.config,
        video=VideoConfig(fps=2.0, min_frames=4, max_frames=12),
        template=Component("prompt", "plain", registry.get("prompt", "plain").config()),
        max_prompt_tokens=MAX_MODEL_LEN,
        eos_ids=tuple(loaded.eos_ids),
    )
    prompts = tuple(builder.build(s) for s in (text_samples(count) if world is None else video_samples(world, count)))
    assert len({len(p.input_ids) for p in prompts}) == count
    return Kit(loaded, builder, prompts, folder)


def text_samples(count: int) -> list[Sample]:
    return [Sample(f"t{i}", "text", "What is two plus two? " + "Think well. " * i) for i in range(count)]


def video_samples(world: Path, count: int) -> list[Sample]:
    component = Component("source", "jsonl", registry.get("source", "jsonl").config())
    rows = component(world / "world.jsonl", videos=world).samples[:count]
    return [replace(row, video=replace(row.video, end=8.0 - 2.3 * i, duration=None)) for i, row in enumerate(rows)]


def scores(
    policy: Any, prompts: Sequence[Prompt], answers: Sequence[Sequence[Completion]], *, temperature: float = 1.0
) -> list[torch.Tensor]:
    """The trainer's log-probs of every answer, from packed rows."""
    out: list[torch.Tensor] = []
    with torch.no_grad():
        for prompt, group in zip(prompts, answers, strict=True):
            row = (PackedGroup(prompt, tuple(c.token_ids for c in group)),)
            out += policy(row, temperature=temperature).logp_R.split([len(c.token_ids) for c in group])
    return out


def parity(policy: Any, prompts: Sequence[Prompt], answers: Sequence[Sequence[Completion]], *, temperature: float = 1.0) -> float:
    """Largest |sampler - trainer| over all sampled tokens."""
    metrics = compare([c for group in answers for c in group], scores(policy, prompts, answers, temperature=temperature))
    assert metrics["rollout/logp_tokens"] == sum(len(c.token_ids) - c.given for group in answers for c in group) > 0
    assert metrics["rollout/logp_missing"] == 0
    return metrics["rollout/logp_diff_max"]


def ids(answers: Sequence[Sequence[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[c.token_ids for c in group] for group in answers]


def prefer(policy: Any, token_id: int, *, by: float = 0.4) -> None:
    """Make `token_id` likely everywhere: all text shares a large constant feature, and the token's head row reads it."""
    embed, head = policy.family.embed(policy.hf), policy.family.head(policy.hf)
    with torch.no_grad():
        if head.weight is not embed.weight:
            head.weight[:, 0] = 0.0
        embed.weight[:, 0] = 20.0
        head.weight[token_id, 0] += by


TEXTS = ("<think>\nWhat is sought: it.\nFrom 1.00s to 2.00s, the red square moves.", "<think>\nWhat is sought: it.", "red")


def some_prefixes(kit: Kit, n: int) -> list[list[tuple[int, ...]]]:
    """Ragged ones: long, short, one word and none, at other members for every prompt."""
    texts = [*map(kit.builder.encode, TEXTS), ()]
    return [[texts[(i + m) % len(texts)] for m in range(n)] for i in range(len(kit.prompts))]


def check_prefixed(kit: Kit, answers: Sequence[Sequence[Completion]], given: Sequence[Sequence[tuple[int, ...]]], *, most: int) -> None:
    """Every answer begins with its prefix, says so, holds at most `most` tokens with it, and has log-probs of its own tokens alone."""
    for group, prefixes in zip(answers, given, strict=True):
        for c, prefix in zip(group, prefixes, strict=True):
            assert c.token_ids[: len(prefix)] == prefix
            assert c.given == len(prefix) < len(c.token_ids) <= most
            assert len(c.logprobs) == len(c.token_ids)
            assert [math.isnan(x) for x in c.logprobs] == [True] * c.given + [False] * (len(c.token_ids) - c.given)
            assert c.text == kit.builder.decode(c.token_ids)
            assert (c.finish == "length") == (c.token_ids[-1] not in kit.builder.eos_ids)
            assert c.finish == "stop" or len(c.token_ids) == most
