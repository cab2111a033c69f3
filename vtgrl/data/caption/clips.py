"""Which clips have to be asked about: one request a clip, however many questions speak of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vtgrl.core.errors import DataError
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.caption.types import Job
from vtgrl.data.video.decode import clip_id
from vtgrl.data.video.plan import resolve_policy
from vtgrl.data.video.types import FramePolicy

UNIT = 28
"""Sides of a frame are multiples of it: the patch of most servers' models (28, 32) is near."""


@dataclass(frozen=True)
class Todo:
    """jobs: clips to caption, in the order of their first row. bare: rows without a video. kept: rows that have captions already."""

    jobs: tuple[Job, ...]
    bare: int
    kept: int


def frame_policy(video: VideoConfig) -> FramePolicy:
    """Frames for a server, whose model's patch is not known.

    Raises:
        ConfigError: settings that make no sense.
    """
    return resolve_policy(video, unit=UNIT)


def same_clip(ref: VideoRef) -> VideoRef:
    """One value for all rows that mean the same part of a file: a stated duration only counts where it decides about the cut."""
    return replace(ref, start=ref.start or None, duration=ref.duration if ref.maybe_cut else None)


def find_jobs(samples: Sequence[Sample], policy: FramePolicy, *, again: bool) -> Todo:
    """The distinct clips of rows that need captions. `again`: rows that have some need new ones."""
    wanted = [s for s in samples if s.video is not None and (again or not s.captions)]
    rows: dict[VideoRef, list[str]] = {}
    for sample in wanted:
        assert sample.video is not None
        rows.setdefault(same_clip(sample.video), []).append(sample.id)
    jobs = tuple(Job(_key(ref, policy), ref, tuple(ids)) for ref, ids in rows.items())
    bare = sum(s.video is None for s in samples)
    return Todo(jobs, bare, len(samples) - bare - len(wanted))


def _key(ref: VideoRef, policy: FramePolicy) -> str:
    try:
        return clip_id(ref, policy)
    except DataError:  # whoever loads the clip finds the same fault, and says it
        return ""


def with_captions(samples: Iterable[Sample], captions: Mapping[VideoRef, tuple[Caption, ...]], *, again: bool, drop: bool) -> list[Sample]:
    """The rows in their order, with the captions of their clip. A row whose clip got none keeps what it had; `drop`: it is left out."""
    rows = []
    for sample in samples:
        if sample.video is None or (sample.captions and not again):
            rows.append(sample)
            continue
        found = captions.get(same_clip(sample.video))
        if found or not drop:
            rows.append(replace(sample, captions=found or sample.captions))
    return rows
