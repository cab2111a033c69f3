"""Clips as the vision tower and the engines take them, each decoded and processed once for all its questions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from vtgrl.core.errors import DataError
from vtgrl.core.log import logger
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import VideoRef
from vtgrl.data.video.cache import open_cache
from vtgrl.data.video.plan import resolve_policy
from vtgrl.data.video.reader import Loader, clip_id
from vtgrl.data.video.types import Clip
from vtgrl.model.families.base import Family
from vtgrl.model.types import Medium

CACHE_BYTES = 2**30
"""Frames and pixel rows kept in memory; a clip of 3,584 vision tokens takes 75 MB."""
MEDIUM_BYTES = 5
"""Of a medium, for each byte of its clip's frames: uint8 frames and float32 pixel rows of the same numbers."""


def clip_metadata(clip: Clip, *, temporal_patch: int) -> dict[str, Any]:
    """What the Hugging Face processor and vLLM are told about a clip.

    Both turn `frames_indices / fps` into the timestamps that Qwen3-VL reads and `frames / total_num_frames * fps` into the
    seconds per temporal slice that Qwen2.5-VL's positions need. A file's own frame numbers cannot tell the times of a clip
    with a variable frame rate, so the clock here is a second: `fps` is 1, the "indices" are the true times in seconds.
    The seconds per slice that follow from it are a bfloat16 number (see `families._qwen_vl.seconds_per_grid`).
    """
    times = list(clip.times) + [clip.times[-1]] * (-len(clip.times) % temporal_patch)
    slice_seconds = float(torch.tensor(temporal_patch / clip.fps).bfloat16())
    return {
        "fps": 1.0,
        "duration": clip.duration,
        "total_num_frames": slice_seconds / temporal_patch * len(times),
        "frames_indices": times,
        "video_backend": "vtgrl",
    }


def make_medium(clip: Clip, *, processor: Any, family: Family) -> Medium:
    """One clip through the video processor. An odd number of frames is made even by showing the last one twice.

    Raises:
        DataError: the processor gave another number of vision tokens than the grid says.
    """
    temporal_patch = processor.video_processor.temporal_patch_size
    frames_THWC = clip.frames_THWC
    if odd := -len(frames_THWC) % temporal_patch:
        frames_THWC = np.concatenate([frames_THWC, np.repeat(frames_THWC[-1:], odd, axis=0)])
    metadata = clip_metadata(clip, temporal_patch=temporal_patch)
    pixel_values, grid_thw, seconds_per_grid = family.clip_inputs(processor, frames_THWC, metadata)
    t, h, w = grid_thw
    if len(pixel_values) != t * h * w:
        raise DataError(f"clip {clip.id}: {len(pixel_values)} patches for a grid of {t}x{h}x{w}")
    return Medium(
        id=clip.id,
        frames_THWC=frames_THWC,
        metadata=metadata,
        pixel_values=pixel_values,
        grid_thw=grid_thw,
        seconds_per_grid=seconds_per_grid,
    )


class MediaStore:
    """Clips by file, cut and frame policy; the longest unused leave when `cache_bytes` are full.

    With `video.workers`, announced clips are decoded in processes and go through the processor in threads, which do not hold
    up the caller: the processor is torch work outside Python's lock. (In the decoding processes it would cost more: pixel rows
    are four times as large as frames, and to send them takes longer than to compute them.)
    """

    def __init__(self, *, processor: Any, family: Family, config: Any, video: VideoConfig, cache_bytes: int = CACHE_BYTES) -> None:
        """Raises:
        ConfigError: a number in `video` that makes no sense; `video.cache_dir` cannot be used.
        EnvironmentMissing: the decoder is not installed.
        """
        self._policy = resolve_policy(video, unit=family.unit(config))
        self._cache = open_cache(video.cache_dir, gigabytes=video.cache_gb) if video.cache_dir else None
        self._loader = Loader(
            self._policy,
            finish=lambda clip: make_medium(clip, processor=processor, family=family),
            growth=MEDIUM_BYTES,
            backend=video.backend,
            timeout_s=video.timeout_s,
            workers=video.workers,
            cache=self._cache,
            ahead_bytes=int(video.ahead_gb * 2**30),
        )
        self._limit = cache_bytes
        self._media: OrderedDict[str, Medium] = OrderedDict()
        self.bytes = 0

    @property
    def decoded(self) -> int:
        """Clips that a decoder made, ahead of need included; the others came from memory or from `video.cache_dir`."""
        return self._loader.decoded

    def get(self, ref: VideoRef) -> Medium:
        """The clip, decoded unless it is in memory or in the frame cache.

        Raises:
            DataError: the file cannot be used; names it.
            RunError: the frame cache cannot be written any more.
        """
        key = clip_id(ref, self._policy)
        if key in self._media:
            self._media.move_to_end(key)
            return self._media[key]
        medium = self._loader.load(ref)
        self._keep(medium)
        return medium

    def prefetch(self, refs: Iterable[VideoRef]) -> None:
        """Say which clips will be asked for next, in order; those that are not in memory are made ahead."""
        self._loader.prefetch(ref for ref in refs if not self._has(ref))

    def close(self) -> None:
        """Stop the decoding processes and forget all clips."""
        self._loader.close()
        self._media.clear()
        self.bytes = 0
        if self._cache is not None:
            logger.info("clips: %d decoded, %d from the frame cache %s", self.decoded, self._loader.cached, self._cache.folder)

    def _has(self, ref: VideoRef) -> bool:
        try:
            return clip_id(ref, self._policy) in self._media
        except DataError:  # said when it is asked for
            return False

    def _keep(self, medium: Medium) -> None:
        self._media[medium.id] = medium
        self.bytes += _size(medium)
        while self.bytes > self._limit:
            _, oldest = self._media.popitem(last=False)
            self.bytes -= _size(oldest)


def _size(medium: Medium) -> int:
    return int(medium.frames_THWC.nbytes) + medium.pixel_values.numel() * medium.pixel_values.element_size()
