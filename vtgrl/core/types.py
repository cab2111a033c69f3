"""The records that every part of vtgrl passes to the next. All frozen; seconds are floats, relative to the cut clip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Window = tuple[float, float]
"""(start, end) in seconds, relative to the cut clip."""

Task = Literal["vtg", "qa", "text"]
Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class VideoRef:
    """Which part of which file a sample speaks of.

    `start`/`end` cut the file (None: from its beginning / to its end), in seconds of the file. `duration` is the
    length in seconds of the cut clip when the annotation states it, else None until the file has been opened.
    `maybe_cut`: the file may already be the cut clip; whoever opens it compares its real length with `duration`.
    """

    path: str
    start: float | None = None
    end: float | None = None
    duration: float | None = None
    maybe_cut: bool = False


@dataclass(frozen=True, slots=True)
class Caption:
    """One event of a clip: `text` happens from `start` to `end` (seconds of the cut clip)."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One question about one clip (or a text-only question when `video` is None).

    Example: Sample(id="test0", task="vtg", video=VideoRef("3MSZA.mp4", duration=31.0),
                    query="person turn a light on.", windows=((24.3, 30.4),))
    """

    id: str
    task: Task
    query: str
    video: VideoRef | None = None
    windows: tuple[Window, ...] = ()
    options: tuple[str, ...] = ()
    answer: str | None = None
    answer_kind: str | None = None
    captions: tuple[Caption, ...] = ()
    split: str = "train"
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer. `token_ids` hold the end token when the model wrote one.

    `logprobs[t]` is the sampler's log-probability of `token_ids[t]` after temperature, top-p and top-k
    (len == len(token_ids)). `policy_version` is the optimizer step whose weights sampled it. The first `given` tokens were
    put there by the trainer (a prefix), not sampled: their log-probs are NaN.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: Finish
    policy_version: int
    given: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """All answers to one prompt in one step. `id` is unique within the step; rows are matched by it, never by stride.

    `prompt_ids` are the expanded ids that the trainer feeds (every vision placeholder present). Pixels are never in
    here: `media_ids` name entries of the run's `MediaStore`.
    """

    id: str
    sample: Sample
    prompt_ids: tuple[int, ...]
    media_ids: tuple[str, ...]
    completions: tuple[Completion, ...]
    rewards: tuple[float, ...] = ()
