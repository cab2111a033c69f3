"""What both sides train on: the same prompts (ids and pixels), answers and rewards.

A prompt shows still images, which TRL's trainer takes and videos it does not. Our side sees each as a clip of two equal frames, which
the tower turns into the same tokens at the same positions; in the prompt's ids only the placeholder differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from vtgrl.bench.measure.kit import Kit, answers
from vtgrl.core.types import Completion
from vtgrl.model.types import Medium, Prompt
from vtgrl.reward.types import RewardTable

QUESTION = "When is the red square visible? "
FAMILY = "qwen2_5_vl"


@dataclass(frozen=True)
class StepSize:
    """Rollouts of one step: `prompts` prompts of `prompt` tokens, each with `answers` answers of `answer` tokens.

    images, side: images a prompt shows, and merged patches along each of their sides.
    """

    prompts: int
    prompt: int
    answers: int
    answer: int
    images: int
    side: int


@dataclass(frozen=True, eq=False)
class SamePrompt:
    """One prompt as each side takes it. images: uint8 [H, W, 3]; chat_text: the user's turn without its images."""

    ours: Prompt
    peer_ids: tuple[int, ...]
    chat_text: str
    images: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class SameRollouts:
    """answers: ids, per prompt; rewards: one an answer, prompt by prompt."""

    prompts: tuple[SamePrompt, ...]
    answers: tuple[tuple[tuple[int, ...], ...], ...]
    rewards: tuple[float, ...]

    @property
    def completions(self) -> list[list[Completion]]:
        """The answers as our engines return them."""
        return [[Completion(ids, (0.0,) * len(ids), "", "stop", 0) for ids in group] for group in self.answers]

    @property
    def table(self) -> RewardTable:
        """The rewards as our reward functions return them."""
        return RewardTable(self.rewards, {"drawn": self.rewards})


def same_rollouts(kit: Kit, size: StepSize) -> SameRollouts:
    """Random pixels, answers and rewards; every prompt has exactly `size.prompt` tokens.

    Raises:
        ConfigError: images and chat alone are longer than that.
    """
    count = size.prompts * size.answers
    rewards = torch.rand(count, generator=torch.Generator().manual_seed(0))
    return SameRollouts(
        prompts=tuple(_prompt(kit, size, i) for i in range(size.prompts)),
        answers=tuple(answers([size.answer] * size.answers, seed=i) for i in range(size.prompts)),
        rewards=tuple(rewards.tolist()),
    )


def _prompt(kit: Kit, size: StepSize, index: int) -> SamePrompt:
    media = [_still(kit, seed=index * size.images + i, side=size.side) for i in range(size.images)]
    bare = kit.prompt(QUESTION, media)
    digits = _digits(size.prompt - len(bare.input_ids), seed=index)
    text = QUESTION + digits
    made = kit.prompt(text, media, tokens=size.prompt)
    return SamePrompt(made, _with_images(kit, made), text, tuple(m.frames_THWC[0] for m in media))


def _digits(count: int, *, seed: int) -> str:
    """Text of exactly `count` tokens: the tiny tokenizer gives every digit one."""
    drawn = np.random.default_rng(seed).integers(0, 10, max(count, 0))
    return "".join(map(str, drawn))


def _still(kit: Kit, *, seed: int, side: int) -> Medium:
    """A clip of one temporal slice whose two frames are equal."""
    pixels = side * kit.family.unit(kit.config)
    frame = np.random.default_rng(seed).integers(0, 256, (1, pixels, pixels, 3), dtype=np.uint8)
    frames = np.repeat(frame, 2, axis=0)
    meta = {"fps": 2.0, "duration": 1.0, "total_num_frames": 2, "frames_indices": [0, 1], "video_backend": "x"}
    return Medium(f"still{seed}-{side}", frames, meta, *kit.family.clip_inputs(kit.processor, frames, meta))


def _with_images(kit: Kit, prompt: Prompt) -> tuple[int, ...]:
    """The ids with image placeholders in place of the clips'."""
    ids = list(prompt.input_ids)
    for place in prompt.vision_index.tolist():
        ids[place] = kit.config.image_token_id
    return tuple(ids)
