"""What captioning costs: counted afterwards, estimated before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import Sample
from vtgrl.data.caption.clips import UNIT, frame_policy, same_clip
from vtgrl.data.caption.types import Job, Usage
from vtgrl.data.prompts.dense_captions import TEXT
from vtgrl.data.video.plan import frame_pixels

CHARACTERS_A_TOKEN = 4
FRAME_TEXT_TOKENS = 8
MILLION = 1e6


@dataclass(frozen=True)
class Prices:
    """Of a million tokens, in any currency."""

    prompt: float
    completion: float

    def of(self, usage: Usage) -> float:
        """Price of all tokens that the server told."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / MILLION


def estimate(
    jobs: Sequence[Job], samples: Sequence[Sample], video: VideoConfig, *, max_tokens: int, prices: Prices | None
) -> dict[str, Any]:
    """One answer a clip: at most so many frames and tokens. No file is opened; a clip whose rows state no length has `max_frames`.

    A frame counts one token for each 28 x 28 pixels at its largest size; servers differ.
    """
    lengths = _lengths(samples)
    frames = [_frames(lengths.get(job.ref), video) for job in jobs]
    policy = frame_policy(video)
    tokens = sum(n * (FRAME_TEXT_TOKENS + int(frame_pixels(policy, frames=max(n, 1))) // UNIT**2) for n in frames)
    usage = Usage(len(jobs), tokens + len(jobs) * len(TEXT) // CHARACTERS_A_TOKEN, len(jobs) * max_tokens)
    return {
        "requests": len(jobs),
        "frames_at_most": sum(frames),
        "prompt_tokens_about": usage.prompt_tokens,
        "completion_tokens_at_most": usage.completion_tokens,
        "cost_at_most": None if prices is None else prices.of(usage),
    }


def _lengths(samples: Sequence[Sample]) -> Mapping[Any, float]:
    return {same_clip(s.video): s.video.duration for s in samples if s.video is not None and s.video.duration is not None}


def _frames(seconds: float | None, video: VideoConfig) -> int:
    if seconds is None:
        return video.max_frames
    return min(max(math.ceil(seconds * video.fps), video.min_frames), video.max_frames)
