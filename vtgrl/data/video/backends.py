"""The two decoders behind one protocol. Same frames, bit for bit (tested), same times (both from `probe`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vtgrl.core.errors import ConfigError, EnvironmentMissing
from vtgrl.data.video.probe import FileInfo, open_video, reason

THREADS = 2
"""Decoder threads a file. More hold more frames in memory; decode in parallel over files instead (video.workers)."""


class FrameMissing(Exception):
    """A frame cannot be had. `frames_before_end`: how many frames there are, when the file turned out to end early."""

    def __init__(self, index: int, why: str, *, frames_before_end: int | None = None) -> None:
        super().__init__(why)
        self.index = index
        self.why = why
        self.frames_before_end = frames_before_end


class DecordUnable(Exception):
    """decord cannot read this file exactly; PyAV decides whether it is damaged."""


class VideoReader(Protocol):
    """Frames of one file by index; one frame in memory at a time."""

    def frames(self, indices: Sequence[int]) -> Iterator[np.ndarray]:
        """Upright RGB uint8 [H, W, 3] for each index, which increase.

        Raises:
            FrameMissing: damaged, or the file ends before it.
        """


class PyavReader:
    """FFmpeg through PyAV. Frames are found by their presentation time, so a lost one is noticed, never replaced."""

    def __init__(self, info: FileInfo) -> None:
        self._info = info

    def frames(self, indices: Sequence[int]) -> Iterator[np.ndarray]:
        """See VideoReader."""
        with open_video(self._info.path) as (container, stream):
            walk = _Walk(self._info, container, stream)
            try:
                for index in indices:
                    yield upright(walk.to(index))
            finally:
                walk.end()


class _Walk:
    """Goes through a file forwards: jumps when a keyframe lies between here and the wanted frame, else decodes on."""

    def __init__(self, info: FileInfo, container: InputContainer, stream: VideoStream) -> None:
        self._info, self._container, self._stream = info, container, stream
        self._here = -1
        self._damage = ""
        self._frames = self._decode()

    def to(self, index: int) -> VideoFrame:
        """The frame with this index."""
        jumped = self._jump(index)
        for position, frame in self._frames:
            self._here = position
            if position == index:
                if self._damage:
                    raise FrameMissing(index, self._damage)
                return frame
            if position > index:
                if not jumped:
                    raise FrameMissing(index, self._damage or "the decoder skips it")
                # The container's index led past the keyframe: walk there from the beginning.
                jumped = False
                self._restart(int(self._info.pts_N[0]))
        raise FrameMissing(index, self._damage or "the file ends before it", frames_before_end=self._here + 1)

    def end(self) -> None:
        """Let go of the decoder now: walk and generator hold each other, which would wait for the garbage collector."""
        self._frames = iter(())

    def _jump(self, index: int) -> bool:
        """Seek to the last keyframe at or before the frame, when that lies ahead of here."""
        keys, pts = self._info.keys_K, self._info.pts_N
        before = int(np.searchsorted(keys, pts[index], side="right")) - 1
        if self._info.counted or before < 1 or (self._here >= 0 and keys[before] <= pts[self._here]):
            return False
        self._restart(int(keys[before]))
        return True

    def _restart(self, pts: int) -> None:
        self._container.seek(pts, stream=self._stream, backward=True)
        self._frames, self._damage = self._decode(), ""

    def _decode(self) -> Iterator[tuple[int, VideoFrame]]:
        """(index in the file, frame). What cannot be decoded damages all frames up to the next whole keyframe."""
        count = -1
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
                found = packet.decode() if packet is not None else None
            except FFmpegError as error:
                self._damage = reason(error)
                continue
            if found is None:
                return
            for frame in found:
                assert isinstance(frame, VideoFrame)
                count += 1
                self._damage = _damage_at(frame, before=self._damage)
                position = count if self._info.counted else self._position(frame.pts)
                if position is not None:
                    yield position, frame

    def _position(self, pts: int | None) -> int | None:
        """Index of the frame shown at `pts`; None for one that is not to be shown (before an edit list's start)."""
        if pts is None:
            return None
        index = int(np.searchsorted(self._info.pts_N, pts))
        return index if index < len(self._info.pts_N) and self._info.pts_N[index] == pts else None


def _damage_at(frame: VideoFrame, *, before: str) -> str:
    if frame.is_corrupt:
        return "the decoder marks it as corrupt"
    return "" if frame.key_frame else before


def upright(frame: VideoFrame) -> np.ndarray:
    """RGB uint8 [H, W, 3], turned as the file's display matrix says."""
    image_HWC = frame.to_ndarray(format="rgb24")
    return np.ascontiguousarray(np.rot90(image_HWC, frame.rotation // 90))


class DecordReader:
    """decord: seeks and skips in C++. Any trouble is a DecordUnable; `PyavReader` then says what is wrong."""

    def __init__(self, info: FileInfo) -> None:
        self._info = info

    def frames(self, indices: Sequence[int]) -> Iterator[np.ndarray]:
        """See VideoReader.

        Raises:
            DecordUnable: it cannot open the file (AV1, for example), counts other frames than the packets show, or its
                decoder complained about anything before the last frame.
        """
        decord = _decord()
        with _silence_or_complain():
            try:
                reader = decord.VideoReader(self._info.path, num_threads=THREADS)
            except (decord.DECORDError, RuntimeError) as error:
                raise DecordUnable(f"decord cannot open this file (codec {self._info.codec})") from error
            try:
                if self._info.counted or len(reader) != len(self._info.pts_N):
                    raise DecordUnable(f"decord counts {len(reader)} frames where the packets show {len(self._info.pts_N)}")
                for index in indices:
                    yield _unpadded(reader[index].asnumpy(), self._info)
            except (decord.DECORDError, RuntimeError) as error:
                raise DecordUnable(f"decord cannot read it ({_first_line(str(error))})") from error


@contextmanager
def _silence_or_complain() -> Iterator[None]:
    """decord hands out concealed and repeated frames without a word, but its ffmpeg writes to stderr: listen there.

    Only sound in a process that does nothing else meanwhile, such as the decoding worker.
    """
    with open(os.memfd_create("decord"), "r+b") as heard:
        stderr = os.dup(2)
        os.dup2(heard.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        heard.seek(0)
        words = heard.read().decode(errors="replace")
    if words:
        raise DecordUnable(f"decord cannot read it cleanly ({_first_line(words)})")


@cache
def _decord() -> Any:
    import decord

    decord.logging.set_level(decord.logging.ERROR)
    return decord


def _first_line(text: str) -> str:
    """decord's message without time, source position and stack trace."""
    lines = text.strip().splitlines() or ["no reason given"]
    return re.sub(r"^.*?\.cc:\d+: *(Check failed: )?", "", lines[0])


def _unpadded(image: np.ndarray, info: FileInfo) -> np.ndarray:
    """decord 0.6 hands out the row padding of a turned narrow frame as a fourth channel: take it off."""
    if image.shape == (info.height, info.width, 3):
        return image
    if image.size % info.height or image.size // info.height < info.width * 3:
        raise DecordUnable(f"decord gives frames of shape {image.shape} for {info.width}x{info.height}")
    rows = image.reshape(info.height, -1)
    return np.ascontiguousarray(rows[:, : info.width * 3]).reshape(info.height, info.width, 3)


def check_backend(name: str) -> None:
    """ConfigError for an unknown backend, EnvironmentMissing for one that is not installed."""
    if name not in ("decord", "pyav"):
        raise ConfigError(f"video.backend is {name!r}: decord or pyav")
    if name == "decord" and find_spec("decord") is None:
        raise EnvironmentMissing("decord is not installed (it has no wheel for this machine); set video.backend=pyav")
