"""A group and the same group under a shuffled clip, for the benches of the probe pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, answers
from vtgrl.bench.measure.peer import pairs, score_batch
from vtgrl.core.registry import get, opt
from vtgrl.model.slices import Variant
from vtgrl.model.types import PackedGroup

Granularity = Literal["frame", "patch"]


@dataclass(frozen=True)
class ShuffledConfig(TinyConfig):
    """One group that shows one clip, two frames a second."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    answers: int = opt(8, "answers of the group", ge=1)
    answer: int = opt(16, "tokens of an answer", ge=1)
    frames: int = opt(60, "frames of the clip; two make one temporal slice", ge=4)
    side: int = opt(4, "tokens of a slice along each side", ge=1)
    radius_s: float = opt(3.0, "frames this near to the event's boundaries are shuffled", gt=0)


def true_group(kit: Kit, config: ShuffledConfig) -> PackedGroup:
    """The event lies in the middle third of the clip."""
    clip = kit.medium(0, frames=config.frames, side=config.side)
    seconds = config.frames / 2
    prompt = kit.prompt("When does it happen?", [clip])
    sample = replace(prompt.sample, windows=((seconds / 3, 2 * seconds / 3),))
    return PackedGroup(replace(prompt, sample=sample, duration=seconds), answers([config.answer] * config.answers))


def shuffled_group(group: PackedGroup, config: ShuffledConfig, *, granularity: Granularity) -> tuple[PackedGroup, Variant]:
    """As the trainer scores it with the probe `boundary_shuffle`, and the clip in it."""
    entry = get("probe", "boundary_shuffle")
    found = entry.fn(group.prompt, config=entry.config(radius_s=config.radius_s, granularity=granularity), seed=0)
    (prompt,) = found.prompts
    variant = prompt.media[0]
    assert isinstance(variant, Variant)
    return replace(group, prompt=prompt), variant


def one_by_one(hf: Any, group: PackedGroup) -> torch.Tensor:
    """Log-probs [R] of a group's answers by the plain forward, each with its prompt and clip, logits of every token."""
    return torch.cat([score_batch(hf, [pair], full_logits=True) for pair in pairs((group,))])


def slices(work: Callable[[], object], tower: nn.Module) -> int:
    """Temporal slices that `work` sends through a vision tower."""
    found: list[int] = []

    def count(module: nn.Module, args: Any, kwargs: Any) -> None:
        found.append(int(kwargs["grid_thw"][:, 0].sum()))

    with _hook(tower.register_forward_pre_hook(count, with_kwargs=True)):
        work()
    return sum(found)


@contextmanager
def _hook(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()
