"""One clip from file to frames, in this process. Everyone else goes through `reader.load_clip`, which can stop it."""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from pathlib import Path

import numpy as np

from vtgrl.core.errors import DataError
from vtgrl.core.types import VideoRef
from vtgrl.data.video.backends import DecordReader, DecordUnable, FrameMissing, PyavReader, VideoReader
from vtgrl.data.video.cut import resolve_cut
from vtgrl.data.video.plan import FramePlan, plan_frames
from vtgrl.data.video.probe import TAIL_FRAMES, FileInfo, check_file, probe
from vtgrl.data.video.resize import resize
from vtgrl.data.video.types import Clip, FramePolicy


def clip_id(ref: VideoRef, policy: FramePolicy) -> str:
    """Digest of file identity, cut and policy, without opening the file: equal ids mean equal frames.

    Raises:
        DataError: no such file, a folder, or empty.
    """
    check_file(ref.path)
    path = Path(ref.path).resolve()
    status = path.stat()
    facts = (str(path), status.st_size, status.st_mtime_ns, *astuple(ref)[1:], *astuple(policy))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def decode_clip(ref: VideoRef, *, policy: FramePolicy, backend: str) -> Clip:
    """Decode, turn upright and resize the frames that the policy chooses; one source frame in memory at a time.

    Raises:
        DataError: names the file and what is wrong with it.
    """
    identity = clip_id(ref, policy)
    clip = _decode(identity, ref, policy=policy, backend=backend)
    if clip_id(ref, policy) != identity:
        raise DataError(f"{ref.path}: changed while it was read; let the writer finish, then run again")
    return clip


def _decode(identity: str, ref: VideoRef, *, policy: FramePolicy, backend: str) -> Clip:
    """The clip; a file without the last few frames that it promises is taken as that much shorter."""
    info = probe(ref.path)
    try:
        return _clip(identity, ref, info, policy=policy, backend=backend)
    except FrameMissing as missing:
        shorter = _without_tail(info, missing)
    try:
        return _clip(identity, ref, shorter, policy=policy, backend="pyav")
    except FrameMissing as missing:
        raise _damaged(info, missing) from missing


def _clip(identity: str, ref: VideoRef, info: FileInfo, *, policy: FramePolicy, backend: str) -> Clip:
    start, end, notes = resolve_cut(ref, info.duration)
    plan = plan_frames(
        info.times_N, start=start, end=end, rate=info.rate, height=info.height, width=info.width, policy=policy, where=ref.path
    )
    frames_THWC, reader_notes = _read(info, plan, backend=backend)
    times = [float(info.times_N[i]) - start for i in plan.indices]
    times += [times[-1] + (k + 1) / info.rate for k in range(plan.repeats)]
    return Clip(
        id=identity,
        frames_THWC=frames_THWC,
        times=tuple(times),
        fps=(len(times) - 1) / (times[-1] - times[0]),
        duration=end - start,
        source_fps=info.rate,
        repeated=plan.repeats,
        notes=(*info.notes, *notes, *reader_notes),
    )


def _read(info: FileInfo, plan: FramePlan, *, backend: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Frames [T, H, W, 3] and what has to be said about the reading."""
    if backend == "pyav":
        return _fill(PyavReader(info), plan), ()
    try:
        return _fill(DecordReader(info), plan), ()
    except DecordUnable as unable:
        return _fill(PyavReader(info), plan), (f"{unable}; read with pyav",)


def _fill(reader: VideoReader, plan: FramePlan) -> np.ndarray:
    frames_THWC = np.empty((len(plan.indices) + plan.repeats, plan.height, plan.width, 3), np.uint8)
    for row, image_HWC in enumerate(reader.frames(plan.indices)):
        frames_THWC[row] = resize(image_HWC, height=plan.height, width=plan.width)
    frames_THWC[len(plan.indices) :] = frames_THWC[len(plan.indices) - 1]
    return frames_THWC


def _without_tail(info: FileInfo, missing: FrameMissing) -> FileInfo:
    """The file as shorter by the few frames at its end that are not there.

    Raises:
        DataError: more is missing than that, or something in the middle.
    """
    frames = missing.frames_before_end
    if frames is None or frames < 1 or len(info.times_N) - frames > TAIL_FRAMES:
        raise _damaged(info, missing) from missing
    return info.shortened(frames)


def _damaged(info: FileInfo, missing: FrameMissing) -> DataError:
    time = info.times_N[missing.index]
    return DataError(
        f"{info.path}: damaged: frame {missing.index} of {len(info.times_N)} (at {time:.2f} s) cannot be decoded ({missing.why}); "
        "get the file again or leave the row out"
    )
