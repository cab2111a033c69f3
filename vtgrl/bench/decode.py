"""The frames that a model sees of a film, and only those, against decoding all of it and picking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from vtgrl.bench.measure.cpu import interleaved
from vtgrl.bench.measure.film import write_film
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import VideoRef
from vtgrl.data.video.backends import PyavReader, check_backend, upright
from vtgrl.data.video.cache import FrameCache
from vtgrl.data.video.decode import clip_id, decode_clip
from vtgrl.data.video.plan import FramePlan, plan_frames, resolve_policy
from vtgrl.data.video.probe import THREADS, FileInfo, open_video, probe
from vtgrl.data.video.resize import resize
from vtgrl.data.video.types import Clip, FramePolicy

UNIT = 28
"""Side of a merged patch of Qwen2.5-VL."""
READS = 10
"""A read from the cache takes milliseconds: so many are timed together."""


@dataclass(frozen=True)
class DecodeConfig:
    """A generated film, or a file."""

    video: str = opt("", "file to read in place of the generated film; the next four keys then say nothing")
    seconds: int = opt(60, "length of the film", ge=1)
    rate: int = opt(30, "its frames a second", ge=1)
    width: int = opt(640, "its width, even", ge=28)
    height: int = opt(360, "its height, even", ge=28)
    fps: float = opt(2.0, "frames a second that are sampled", gt=0)
    backend: Literal["pyav", "decord"] = opt("pyav", "decoder of both ways")
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "decode", config=DecodeConfig)
def decode(*, config: DecodeConfig) -> BenchResult:
    """Sampling a film at 2 frames a second: CPU time against decoding it whole and picking; then once more from the frame cache."""
    check_backend(config.backend)
    with TemporaryDirectory(prefix="vtgrl-bench-") as folder:
        path = Path(config.video) if config.video else _film(Path(folder), config)
        details, exactness = _measure(VideoRef(str(path)), config, cache=FrameCache(Path(folder), limit=2**40))
    return BenchResult(
        bench="decode",
        ratio=details["cpu_seconds"]["baseline"] / details["cpu_seconds"]["ours"],
        exactness=exactness,
        unit="CPU time from file to resized frames",
        baseline=f"every frame of the file decoded to RGB with {config.backend}, one thread, then the same frames picked and resized",
        details=details,
    )


def _film(folder: Path, config: DecodeConfig) -> Path:
    return write_film(folder / "film.mp4", seconds=config.seconds, fps=config.rate, width=config.width, height=config.height)


def _measure(ref: VideoRef, config: DecodeConfig, *, cache: FrameCache) -> tuple[dict[str, Any], float]:
    """What was measured, and the largest difference of a pixel among the three ways."""
    policy = resolve_policy(VideoConfig(fps=config.fps), unit=UNIT)
    clip = decode_clip(ref, policy=policy, backend=config.backend)
    info, plan = _plan(ref, policy)
    picked = _picked(info, plan, config.backend)
    cache.put(clip)
    kept = _kept(cache, clip.id)
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: decode_clip(ref, policy=policy, backend=config.backend),
        "baseline": lambda: _picked(*_plan(ref, policy), config.backend),
        "from_cache": lambda: [_kept(cache, clip_id(ref, policy)) for _ in range(READS)],
    }
    seconds = interleaved(ways, repeats=config.repeats)
    seconds["from_cache"] /= READS
    details = {
        "cpu_seconds": seconds,
        "second_epoch_ratio": {name: seconds[name] / seconds["from_cache"] for name in ("ours", "baseline")},
        **_counted(info, plan, clip),
    }
    return details, float(max(_difference(clip.frames_THWC, picked), _difference(clip.frames_THWC, kept.frames_THWC)))


def _counted(info: FileInfo, plan: FramePlan, clip: Clip) -> dict[str, Any]:
    """Frames that PyAV's decoder makes, frames made RGB, and RGB bytes held at once."""
    reader, frame = PyavReader(info), info.height * info.width * 3
    shown = sum(1 for _ in reader.frames(plan.indices))
    total = len(info.times_N)
    return {
        "shape": list(clip.frames_THWC.shape),
        "decoded_frames_pyav": {"ours": reader.decoded, "baseline": total},
        "rgb_frames": {"ours": shown, "baseline": total},
        "rgb_bytes_held": {"ours": frame + clip.frames_THWC.nbytes, "baseline": frame * total + clip.frames_THWC.nbytes},
        "cache_bytes": clip.frames_THWC.nbytes,
    }


def _kept(cache: FrameCache, identity: str) -> Clip:
    clip = cache.get(identity)
    assert clip is not None, "the frame cache has just been given this clip"
    return clip


def _plan(ref: VideoRef, policy: FramePolicy) -> tuple[FileInfo, FramePlan]:
    """Which frames `decode_clip` picks."""
    info = probe(ref.path)
    size = {"height": info.height, "width": info.width}
    plan = plan_frames(info.times_N, start=0.0, end=info.duration, rate=info.rate, **size, policy=policy, where=ref.path)
    return info, plan


def _picked(info: FileInfo, plan: FramePlan, backend: str) -> np.ndarray:
    """The usual way: all frames as one array [N, H, W, 3], indexed, then resized."""
    whole_NHWC = _all_pyav(info.path) if backend == "pyav" else _all_decord(info.path)
    return np.stack([resize(image, height=plan.height, width=plan.width) for image in whole_NHWC[list(plan.indices)]])


def _all_pyav(path: str) -> np.ndarray:
    with open_video(path) as (container, stream):
        return np.stack([upright(frame) for frame in container.decode(stream)])


def _all_decord(path: str) -> np.ndarray:
    import decord

    reader = decord.VideoReader(path, num_threads=THREADS)
    frames_NHWC: np.ndarray = reader.get_batch(range(len(reader))).asnumpy()
    return frames_NHWC


def _difference(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.abs(one.astype(np.int16) - other).max())
