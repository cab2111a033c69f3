"""What is in a video file: true frame times, upright size, damage. Only the first frame is decoded.

Containers lie about frame counts and rates, so frames are counted by their packets: packet times are the presentation
times of the frames, whatever the header says. Both backends use this, and therefore agree on every time.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vtgrl.core.errors import DataError

TAIL_FRAMES = 4
"""So many frames at the end of a file may be promised by the header and yet be missing; more is damage."""
DEFAULT_RATE = 25
"""Frames a second of a raw stream that states none (ffmpeg's own default)."""
THREADS = 1
"""Decoder threads a file. Two cost a quarter more CPU time and hold more frames in memory; decode in parallel over files instead
(video.workers)."""


@dataclass(frozen=True, eq=False)
class FileInfo:
    """One video stream.

    pts_N: presentation time of every frame in the stream's own units, increasing. times_N: the same in seconds after
    the first frame. keys_K: pts of the frames at which decoding can start. `duration`: seconds from the first frame to
    the end of the last. height, width: after the display rotation. `counted`: the packets carry no times, so the k-th
    frame is taken to be shown at k / rate.
    """

    path: str
    codec: str
    height: int
    width: int
    pts_N: np.ndarray
    times_N: np.ndarray
    keys_K: np.ndarray
    duration: float
    counted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Frames a second, on average."""
        return len(self.times_N) / self.duration

    def shortened(self, frames: int) -> FileInfo:
        """Without the last frames, which turned out not to be there."""
        total = len(self.times_N)
        note = f"of {total} frames the last {total - frames} cannot be decoded; they are left out and the times recomputed"
        short = replace(self, pts_N=self.pts_N[:frames], times_N=self.times_N[:frames], duration=float(self.times_N[frames]))
        return replace(short, notes=(*self.notes, note))


def check_file(path: str | Path) -> None:
    """DataError when the path is not a file with something in it."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; check the path and the videos folder") from error
    if stat.S_ISDIR(status.st_mode):
        raise DataError(f"{path}: is a folder, not a video file")
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path}: is not a regular file; copy the video into one")
    if status.st_size == 0:
        raise DataError(f"{path}: is empty (0 bytes); get the file again")


@contextmanager
def open_video(path: str) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The container and its best video stream; closed at the end.

    Raises:
        DataError: not a video, no video stream, or a codec that this build cannot decode.
    """
    check_file(path)
    try:
        container = av.open(path)
    except (FFmpegError, ValueError) as error:
        raise DataError(f"{path}: not a readable video ({reason(error)}); it is damaged or not a video at all") from error
    with container:
        stream = container.streams.best("video")
        if not isinstance(stream, VideoStream):
            raise DataError(f"{path}: holds no video stream")
        if stream.codec_context is None:
            raise DataError(f"{path}: the installed PyAV cannot decode its codec; re-encode the file as H.264")
        stream.codec_context.thread_count = THREADS
        yield container, stream


def probe(path: str) -> FileInfo:
    """Read all packets of a file, and decode its first frame.

    Raises:
        DataError: cannot be opened, nothing can be decoded, or more than a few frames are missing at the end.
    """
    with open_video(path) as (container, stream):
        packets, failure = _packets(container, stream)
        promised, stated, codec = stream.frames, _stated_end(stream), stream.codec.canonical_name
        rate = float(stream.guessed_rate or stream.average_rate or DEFAULT_RATE)
        unit = float(stream.time_base) if stream.time_base else 0.0
    shown = [p for p in packets if not (p.is_corrupt or p.is_discard)]
    if not shown:
        raise DataError(f"{path}: no frame can be read ({failure or 'the stream is empty'}); the file is damaged")
    notes = _missing_at_end(path, promised, sum(not p.is_corrupt for p in packets))
    timeless = not unit or any(p.pts is None for p in shown)
    clock = _counted(path, rate) if timeless else _timed(shown, unit=unit, rate=rate)
    height, width = _upright_size(path)
    info = FileInfo(path, codec, height, width, **asdict(clock), counted=timeless, notes=notes)
    if not promised:
        begin = 0.0 if timeless else float(info.pts_N[0]) * unit
        _check_length(info, None if stated is None else stated - begin, failure)
    return info


def _missing_at_end(path: str, promised: int, readable: int) -> tuple[str, ...]:
    """A note when the header promises a few frames more than there are.

    Raises:
        DataError: it promises many more.
    """
    text = f"the header promises {promised} frames, {readable} can be read"
    if promised - readable > TAIL_FRAMES:
        raise DataError(f"{path}: damaged: {text}; get it again")
    return (text,) if promised > readable else ()


@dataclass(frozen=True, slots=True)
class _Packet:
    """The facts of a packet without its bytes: a long file has many."""

    pts: int | None
    duration: int
    is_keyframe: bool
    is_corrupt: bool
    is_discard: bool


def _packets(container: InputContainer, stream: VideoStream) -> tuple[list[_Packet], str]:
    """Packets that carry a frame, and why reading stopped before the end ("" when it did not)."""
    packets: list[_Packet] = []
    try:
        for p in container.demux(stream):
            if p.size:
                packets.append(_Packet(p.pts, p.duration or 0, p.is_keyframe, p.is_corrupt, p.is_discard))
    except FFmpegError as error:
        return packets, reason(error)
    return packets, ""


def _stated_end(stream: VideoStream) -> float | None:
    """When the stream says it ends, on the file's clock: its own length, or Matroska's DURATION tag (which is an end)."""
    if stream.duration is not None and stream.time_base:
        return ((stream.start_time or 0) + stream.duration) * float(stream.time_base)
    parts = stream.metadata.get("DURATION", "").split(":")
    if len(parts) != 3:
        return None
    hours, minutes, seconds = (float(part) for part in parts)
    return hours * 3600 + minutes * 60 + seconds


@dataclass(frozen=True, eq=False)
class _Clock:
    """The fields of FileInfo that speak of time."""

    pts_N: np.ndarray
    times_N: np.ndarray
    keys_K: np.ndarray
    duration: float


def _timed(shown: list[_Packet], *, unit: float, rate: float) -> _Clock:
    pts_N, first = np.unique([p.pts for p in shown], return_index=True)
    times_N = (pts_N - pts_N[0]) * unit
    last = shown[first[-1]].duration * unit or _usual_step(times_N, rate)
    return _Clock(pts_N, times_N, np.unique([p.pts for p in shown if p.is_keyframe]), float(times_N[-1] + last))


def _usual_step(times_N: np.ndarray, rate: float) -> float:
    return float(np.median(np.diff(times_N))) if len(times_N) > 1 else 1 / rate


def _counted(path: str, rate: float) -> _Clock:
    """For streams whose packets carry no times: count the frames by decoding them all."""
    with open_video(path) as (container, stream):
        try:
            count = sum(1 for _ in container.decode(stream))
        except FFmpegError as error:
            raise DataError(f"{path}: damaged ({reason(error)}), and without frame times; re-encode the file") from error
    index_N = np.arange(count)
    return _Clock(index_N, index_N / rate, index_N[:1], count / rate)


def _check_length(info: FileInfo, stated: float | None, failure: str) -> None:
    """A file without a frame count is cut off when it ends well before the length that it states, or with an error."""
    if failure:
        raise DataError(f"{info.path}: damaged: reading stops after {info.duration:.2f} s ({failure}); get it again")
    if stated is None:
        return
    missing = stated - info.duration
    if missing > max(TAIL_FRAMES / info.rate, 1.0, 0.05 * stated):
        raise DataError(f"{info.path}: damaged: it states {stated:.2f} s and ends after {info.duration:.2f} s; get it again")


def _upright_size(path: str) -> tuple[int, int]:
    """(height, width) of the first frame that can be decoded, as it is to be shown."""
    with open_video(path) as (container, stream):
        try:
            for packet in container.demux(stream):
                for frame in packet.decode():
                    assert isinstance(frame, VideoFrame)
                    sideways = frame.rotation % 180 != 0
                    return (frame.width, frame.height) if sideways else (frame.height, frame.width)
        except FFmpegError as error:
            raise DataError(f"{path}: its first frame cannot be decoded ({reason(error)}); the file is damaged") from error
    raise DataError(f"{path}: no frame can be decoded; the file is damaged")


def reason(error: FFmpegError | ValueError) -> str:
    """ffmpeg's own words, without the error number and the path."""
    return str(error.strerror) if isinstance(error, FFmpegError) else str(error)
