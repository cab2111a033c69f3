"""What is in a video file: true frame times, upright size, damage. Only the first frame is decoded.

Containers lie about frame counts and rates, so frames are counted by their packets: packet times are the presentation
times of the frames, whatever the header says. Both backends use this, and therefore agree on every time.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vtgrl.core.errors import DataError

TAIL_FRAMES = 4
"""So many frames at the end of a file may be promised by the header and yet be missing; more is damage."""
DEFAULT_RATE = 25
"""Frames a second of a raw stream that states none (ffmpeg's own default)."""


@dataclass(frozen=True, eq=False)
class FileInfo:
    """One video stream.

    pts_N: presentation time of every frame in the stream's own units, increasing. times_N: the same in seconds after
    the first frame. keys_K: pts of the frames at which decoding can start. `duration`: seconds from the first frame to
    the end of the last. height, width: after the display rotation. `counted`: the packets carry no times, so the k-th
    frame is taken to be shown at k / rate.
    """

    path: str
    pts_N: np.ndarray
    times_N: np.ndarray
    keys_K: np.ndarray
    duration: float
    height: int
    width: int
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
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = 2
        yield container, stream


def probe(path: str) -> FileInfo:
    """Read all packets of a file, and decode its first frame.

    Raises:
        DataError: cannot be opened, nothing can be decoded, or more than a few frames are missing at the end.
    """
    with open_video(path) as (container, stream):
        packets, failure = _packets(container, stream)
        promised, stated, rate = stream.frames, _stated_seconds(stream), stream.guessed_rate or stream.average_rate
        unit = float(stream.time_base or 0)
    shown = [p for p in packets if not (p.is_corrupt or p.is_discard)]
    if not shown:
        raise DataError(f"{path}: no frame can be read ({failure or 'the stream is empty'}); the file is damaged")
    missing = promised - len([p for p in packets if not p.is_corrupt]) if promised else 0
    if missing > TAIL_FRAMES:
        raise DataError(f"{path}: damaged: the header promises {promised} frames, {promised - missing} can be read; get it again")
    height, width = _upright_size(path)
    info = _timed(path, shown, unit=unit, rate=float(rate or DEFAULT_RATE), height=height, width=width)
    _check_length(info, None if promised else stated, failure if not promised else "")
    notes = (f"the header promises {promised} frames, {promised - missing} can be read",) if missing > 0 else ()
    return replace(info, notes=notes)


def _packets(container: InputContainer, stream: VideoStream) -> tuple[list[Packet], str]:
    """Packets that carry a frame, and why reading stopped before the end ("" when it did not)."""
    packets: list[Packet] = []
    try:
        for packet in container.demux(stream):
            if packet.size:
                packets.append(_light(packet))
    except FFmpegError as error:
        return packets, reason(error)
    return packets, ""


def _light(packet: Packet) -> Any:
    """The numbers of a packet without its bytes: a long file has many."""
    return _PacketFacts(packet.pts, packet.duration or 0, packet.is_keyframe, packet.is_corrupt, packet.is_discard)


@dataclass(frozen=True, slots=True)
class _PacketFacts:
    pts: int | None
    duration: int
    is_keyframe: bool
    is_corrupt: bool
    is_discard: bool


def _stated_seconds(stream: VideoStream) -> float | None:
    """How long the stream says it is: its own field, or Matroska's DURATION tag."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    tag = stream.metadata.get("DURATION", "")
    parts = tag.split(":")
    if len(parts) != 3:
        return None
    hours, minutes, seconds = (float(part) for part in parts)
    return hours * 3600 + minutes * 60 + seconds


def _timed(path: str, shown: list[Any], *, unit: float, rate: float, height: int, width: int) -> FileInfo:
    if not unit or any(p.pts is None for p in shown):
        return _counted(path, rate=rate, height=height, width=width)
    pts_N, first = np.unique([p.pts for p in shown], return_index=True)
    times_N = (pts_N - pts_N[0]) * unit
    last = shown[first[-1]].duration * unit or _usual_step(times_N, rate)
    keys_K = np.unique([p.pts for p in shown if p.is_keyframe])
    return FileInfo(path, pts_N, times_N, keys_K, float(times_N[-1] + last), height, width)


def _usual_step(times_N: np.ndarray, rate: float) -> float:
    return float(np.median(np.diff(times_N))) if len(times_N) > 1 else 1 / rate


def _counted(path: str, *, rate: float, height: int, width: int) -> FileInfo:
    """For streams whose packets carry no times: count the frames by decoding them all."""
    with open_video(path) as (container, stream):
        try:
            count = sum(1 for _ in container.decode(stream))
        except FFmpegError as error:
            raise DataError(f"{path}: damaged ({reason(error)}), and without frame times; re-encode the file") from error
    index_N = np.arange(count)
    return FileInfo(path, index_N, index_N / rate, index_N[:1], count / rate, height, width, counted=True)


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
