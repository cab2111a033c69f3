"""Prompts, answers and policies for tests of the packed forward; random frames, no decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from vtgrl.core.registry import get
from vtgrl.core.types import Sample
from vtgrl.model.guard import score_alone
from vtgrl.model.policy import Policy
from vtgrl.model.types import Medium, PackedGroup, Prompt

VLMS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
FAMILIES = (*VLMS, "text")


@dataclass(frozen=True)
class Kit:
    """A tiny checkpoint and what is needed to make prompts for it."""

    folder: Path
    name: str

    @cached_property
    def family(self) -> Any:
        return get("family", self.name).fn()

    @cached_property
    def config(self) -> Any:
        return AutoConfig.from_pretrained(self.folder)

    def hf(self, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
        auto = AutoModelForCausalLM if self.name == "text" else AutoModelForImageTextToText
        return auto.from_pretrained(self.folder, dtype=dtype, **changes)

    def policy(self, dtype: torch.dtype = torch.float32, *, frozen: bool = False) -> Policy:
        """`frozen`: tower and merger do not train."""
        hf = self.hf(dtype)
        if frozen:
            groups = self.family.freeze_groups(hf)
            for name, p in hf.named_parameters():
                p.requires_grad_(name not in {*groups["vision"], *groups["merger"]})
        return Policy(hf, family=self.family)

    def medium(self, seed: int, *, frames: int = 4, side: int = 2) -> Medium:
        """A clip of random pixels, `side` merged patches high and wide."""
        pixels = side * self.family.unit(self.config)
        array = np.random.default_rng(seed).integers(0, 256, (frames, pixels, pixels, 3), dtype=np.uint8)
        meta = {"fps": 2.0, "duration": frames / 2, "total_num_frames": frames, "frames_indices": list(range(frames)), "video_backend": "x"}
        values, grid, seconds = self.family.clip_inputs(self.processor, array, meta)
        return Medium(f"m{seed}-{frames}-{side}", array, meta, values, grid, seconds)

    @cached_property
    def processor(self) -> Any:
        return (AutoTokenizer if self.name == "text" else AutoProcessor).from_pretrained(self.folder)

    def prompt(self, text: str, media: Sequence[Medium] = ()) -> Prompt:
        """`text` after the media, in one user turn."""
        media = tuple(media)
        clip = "<|vision_start|><|video_pad|><|vision_end|>"
        chat = f"<|im_start|>user\n{clip * len(media)}{text}<|im_end|>\n<|im_start|>assistant\n"
        ids = tuple(self.family.expand(self.processor, chat, media))
        positions, after = self.family.positions(self.config, ids, media)
        token = self.family.vision_token_id(self.config)
        index = torch.tensor([i for i, t in enumerate(ids) if t == token and media], dtype=torch.int64)
        return Prompt(Sample(id=text, task="vtg", query=text), chat, ids, media, index, positions, after, 2.0)


def answers(lengths: Sequence[int], *, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Random ids above the special tokens."""
    g = torch.Generator().manual_seed(seed)
    return tuple(tuple(torch.randint(20, 300, (n,), generator=g).tolist()) for n in lengths)


def group(kit: Kit, lengths: Sequence[int], *, seed: int = 0, media: int = 1) -> PackedGroup:
    """A prompt with `media` clips (none for a text model) and answers of `lengths`."""
    clips = [kit.medium(seed * 10 + i, frames=4 + 2 * i) for i in range(media if kit.name != "text" else 0)]
    return PackedGroup(kit.prompt(f"When does event {seed} happen?", clips), answers(lengths, seed=seed))


def alone(policy: Policy, row: Sequence[PackedGroup]) -> torch.Tensor:
    """[R] by the model's own forward, one answer at a time."""
    return torch.cat([score_alone(policy, g.prompt, a) for g in row for a in g.answers])


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """Copies; then cleared."""
    found = {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad(set_to_none=True)
    return found


def relative(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """|a - b| / |b| over all parameters together, and the same parameters must have gradients."""
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    difference = sum((a[n].double() - b[n].double()).square().sum() for n in b)
    return float((difference / sum(b[n].double().square().sum() for n in b)).sqrt())


def weighted(values_R: torch.Tensor, *, seed: int = 5) -> torch.Tensor:
    """A loss that gives every token its own weight."""
    g = torch.Generator().manual_seed(seed)
    return (values_R * torch.randn(values_R.shape, generator=g)).sum()
