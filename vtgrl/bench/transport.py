"""A group's clip from whoever decodes it to the trainer: uint8 frames once, against float32 pixel rows with every answer."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vtgrl.bench.measure.cpu import interleaved
from vtgrl.bench.measure.kit import Kit, TinyConfig, Vlm, answers, tiny_kit
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Completion, Group, Sample
from vtgrl.data.video.types import Clip
from vtgrl.model.media import make_medium

Answers = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class TransportConfig(TinyConfig):
    """One group that shows one clip."""

    family: Vlm = opt("qwen2_5_vl", "model family")
    answers: int = opt(8, "answers of the group", ge=1)
    answer: int = opt(512, "tokens of an answer", ge=1)
    frames: int = opt(120, "frames of the clip, an even number", ge=2)
    height: int = opt(5, "height of a frame in merged patches", ge=1)
    width: int = opt(10, "width of a frame in merged patches", ge=1)
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "transport", config=TransportConfig)
def transport(*, config: TransportConfig) -> BenchResult:
    """Carrying a group with its clip to the trainer: bytes sent, frames once against pixel rows with every answer."""
    with tiny_kit(config.family, config) as kit:
        details, exactness = _measure(kit, config)
    return BenchResult(
        bench="transport",
        ratio=details["bytes"]["baseline"] / details["bytes"]["ours"],
        exactness=exactness,
        unit="bytes sent for a group",
        baseline="float32 pixel rows pickled with each answer, as batches do whose rows are answers (verl's DataProto)",
        details=details,
    )


def _measure(kit: Kit, config: TransportConfig) -> tuple[dict[str, Any], float]:
    clip, drawn = _clip(kit, config), answers([config.answer] * config.answers)
    sent = {"ours": _ours(clip, drawn), "baseline": _per_answer(kit, clip, drawn), "baseline_in_one_pickle": _one_pickle(kit, clip, drawn)}
    received = _pixels(kit, sent["ours"])
    wrong = max(float((received - row["pixel_values"]).abs().max()) for part in sent["baseline"] for row in [pickle.loads(part)])
    seconds = interleaved(
        {
            "ours": lambda: _pixels(kit, _ours(clip, drawn)),
            "baseline": lambda: [pickle.loads(part) for part in _per_answer(kit, clip, drawn)],
            "baseline_in_one_pickle": lambda: [pickle.loads(part) for part in _one_pickle(kit, clip, drawn)],
        },
        repeats=config.repeats,
    )
    details = {
        "bytes": {name: sum(map(len, parts)) for name, parts in sent.items()},
        "clip_bytes": {"frames_uint8": clip.frames_THWC.nbytes, "pixel_rows_float32": received.numel() * received.element_size()},
        "cpu_seconds_with_the_processor_once": seconds,
        "cpu_ratio": {name: value / seconds["ours"] for name, value in seconds.items() if name != "ours"},
    }
    return details, wrong


def _clip(kit: Kit, config: TransportConfig) -> Clip:
    unit = kit.family.unit(kit.config)
    shape = (config.frames, config.height * unit, config.width * unit, 3)
    frames = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Clip("0" * 24, frames, tuple(i / 2 for i in range(config.frames)), 2.0, config.frames / 2, 30.0)


def _ours(clip: Clip, drawn: Answers) -> list[bytes]:
    """The clip once, and the group, which names it."""
    completions = tuple(Completion(ids, (0.0,) * len(ids), "", "stop", 0) for ids in drawn)
    group = Group("g", Sample(id="a", task="vtg", query="?"), (), (clip.id,), completions)
    return [_pickled(clip), _pickled(group)]


def _pixels(kit: Kit, parts: Sequence[bytes]) -> torch.Tensor:
    """What the trainer makes of them: pixel rows of the clip that the group names."""
    clip, group = (pickle.loads(part) for part in parts)
    assert group.media_ids == (clip.id,)
    return make_medium(clip, processor=kit.processor, family=kit.family).pixel_values


def _rows(kit: Kit, clip: Clip, drawn: Answers) -> list[dict[str, Any]]:
    """One row an answer, all with the same pixel rows."""
    medium = make_medium(clip, processor=kit.processor, family=kit.family)
    grid = torch.tensor([medium.grid_thw])
    return [{"responses": ids, "logprobs": (0.0,) * len(ids), "pixel_values": medium.pixel_values, "video_grid_thw": grid} for ids in drawn]


def _per_answer(kit: Kit, clip: Clip, drawn: Answers) -> list[bytes]:
    """Each answer on its own, as from workers that draw answers one by one or to ranks that get a part of the group."""
    return [_pickled(row) for row in _rows(kit, clip, drawn)]


def _one_pickle(kit: Kit, clip: Clip, drawn: Answers) -> list[bytes]:
    """All rows in one message, which then holds a shared tensor once: the best case of the usual way."""
    return [_pickled(_rows(kit, clip, drawn))]


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
