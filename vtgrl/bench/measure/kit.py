"""What benches (and the tests of the model) run: tiny checkpoints, prompts with random frames, random answers; no decoding.

Shape legend: P prompt tokens, V vision tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import get, opt
from vtgrl.core.schema import Dtype
from vtgrl.core.types import Sample
from vtgrl.model.load import DTYPES, load_parts
from vtgrl.model.policy import Policy
from vtgrl.model.tiny import build_tiny
from vtgrl.model.types import Medium, PackedGroup, Prompt

Vlm = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
VLMS: tuple[Vlm, ...] = get_args(Vlm)
FAMILIES = (*VLMS, "text")
FIRST_ID, PAST_ID = 20, 300
"""Random tokens are drawn from these ids: ordinary ones in every tiny vocabulary."""


@dataclass(frozen=True)
class Kit:
    """A tiny checkpoint of family `name` and what is needed to make prompts for it. `dtype`, `device`: of the models it loads."""

    folder: Path
    name: str
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    @cached_property
    def family(self) -> Any:
        """What is special about the model (`vtgrl.model.families`)."""
        return get("family", self.name).fn()

    @cached_property
    def config(self) -> Any:
        """Hugging Face config."""
        return AutoConfig.from_pretrained(self.folder)

    @cached_property
    def processor(self) -> Any:
        """Hugging Face processor; a tokenizer for a text model."""
        return (AutoTokenizer if self.name == "text" else AutoProcessor).from_pretrained(self.folder)

    def hf(self, dtype: torch.dtype | None = None, **changes: Any) -> Any:
        """The plain Hugging Face model, in eval mode."""
        auto = AutoModelForCausalLM if self.name == "text" else AutoModelForImageTextToText
        return auto.from_pretrained(self.folder, dtype=dtype or self.dtype, **changes).to(self.device)

    def policy(self, dtype: torch.dtype | None = None, *, frozen: bool = False) -> Policy:
        """`frozen`: tower and merger do not train."""
        hf = self.hf(dtype)
        if frozen:
            groups = self.family.freeze_groups(hf)
            for name, p in hf.named_parameters():
                p.requires_grad_(name not in {*groups["vision"], *groups["merger"]})
        return Policy(hf, family=self.family)

    def medium(self, seed: int, *, frames: int = 4, side: int = 2) -> Medium:
        """A clip of random pixels, `side` merged patches high and wide: V = frames / 2 x side^2."""
        pixels = side * self.family.unit(self.config)
        array = np.random.default_rng(seed).integers(0, 256, (frames, pixels, pixels, 3), dtype=np.uint8)
        meta = {"fps": 2.0, "duration": frames / 2, "total_num_frames": frames, "frames_indices": list(range(frames)), "video_backend": "x"}
        values, grid, seconds = self.family.clip_inputs(self.processor, array, meta)
        return Medium(f"m{seed}-{frames}-{side}", array, meta, values, grid, seconds)

    def prompt(self, text: str, media: Sequence[Medium] = (), *, tokens: int = 0) -> Prompt:
        """`text` after the media, in one user turn; random ids behind it until there are `tokens` (0: none are added).

        Raises:
            ConfigError: the turn alone is longer than `tokens`.
        """
        media = tuple(media)
        clip = "<|vision_start|><|video_pad|><|vision_end|>"
        chat = f"<|im_start|>user\n{clip * len(media)}{text}<|im_end|>\n<|im_start|>assistant\n"
        ids = tuple(self.family.expand(self.processor, chat, media))
        if tokens and len(ids) > tokens:
            raise ConfigError(f"a prompt of {tokens} tokens is too short: its clip and chat alone take {len(ids)}")
        ids += _random_ids(max(tokens - len(ids), 0), torch.Generator().manual_seed(len(ids)))
        positions, after = self.family.positions(self.config, ids, media)
        token = self.family.vision_token_id(self.config)
        index = torch.tensor([i for i, t in enumerate(ids) if t == token and media], dtype=torch.int64)
        return Prompt(Sample(id=text, task="vtg", query=text), chat, ids, media, index, positions, after, 2.0)


@dataclass(frozen=True)
class TinyConfig:
    """The model, random and tiny unless `model` names one."""

    model: str = opt("", "model folder to use in place of a random model; `family`, `hidden` and `layers` then say nothing")
    dtype: Dtype = opt("fp32", "type of the weights")
    hidden: int = opt(128, "width of the text model, a multiple of 32", ge=32)
    layers: int = opt(4, "depth of the text model", ge=1)


@contextmanager
def tiny_kit(family: str, config: TinyConfig) -> Iterator[Kit]:
    """A `Kit` of `config.model`, or of a random model in a temporary folder that is gone afterwards; on the GPU if there is one.

    Raises:
        ConfigError: a width that does not divide into heads; no such model.
    """
    disable_progress_bar()  # of saving and loading a megabyte
    place = {"dtype": DTYPES[config.dtype], "device": "cuda" if torch.cuda.is_available() else "cpu"}
    if config.model:
        yield Kit(Path(config.model), load_parts(config.model).family.name, **place)
        return
    with TemporaryDirectory(prefix="vtgrl-bench-") as folder:
        yield Kit(build_tiny(Path(folder) / family, family=family, hidden=config.hidden, layers=config.layers), family, **place)


def answers(lengths: Sequence[int], *, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Random ids above the special tokens."""
    g = torch.Generator().manual_seed(seed)
    return tuple(_random_ids(n, g) for n in lengths)


def _random_ids(count: int, g: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.randint(FIRST_ID, PAST_ID, (count,), generator=g).tolist())


def group(kit: Kit, lengths: Sequence[int], *, seed: int = 0, media: int = 1) -> PackedGroup:
    """A prompt with `media` small clips (none for a text model) and answers of `lengths`."""
    clips = [kit.medium(seed * 10 + i, frames=4 + 2 * i) for i in range(media if kit.name != "text" else 0)]
    return PackedGroup(kit.prompt(f"When does event {seed} happen?", clips), answers(lengths, seed=seed))


def gradients(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the gradients, by parameter name; then cleared."""
    found = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def relative(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> float:
    """|a - b| / |b| over all parameters together, and the same parameters must have gradients."""
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    difference = sum((a[n].double() - b[n].double()).square().sum() for n in b)
    return float((difference / sum(b[n].double().square().sum() for n in b)).sqrt())


def with_zeros(gradients: Mapping[str, torch.Tensor], like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Zeros for the parameters of `like` that have none: a tower that no token went through has a zero gradient in ours, none elsewhere."""
    return {n: gradients[n] if n in gradients else torch.zeros_like(g) for n, g in like.items()}


def weighted(values_R: torch.Tensor, *, seed: int = 5) -> torch.Tensor:
    """A loss that gives every token its own weight."""
    g = torch.Generator().manual_seed(seed)
    return (values_R * torch.randn(values_R.shape, generator=g)).sum()
