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
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from vtgrl.core.errors import ConfigError, EnvironmentMissing
from vtgrl.data.video.probe import THREADS, FileInfo, open_video, reason

SKIPPABLE = ("h264",)
"""Codecs whose decoder can leave out frames that no other frame is predicted from without changing any other frame."""


class FrameMissing(Exception):
    """A frame cannot be had. `frames_before_end`: how many whole frames there are, when the file may have turned out to end early."""

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
    """FFmpeg through PyAV. Frames are found by their presentation time, so a lost one is noticed, never replaced.

    `decoded`: how many frames the decoder has made so far.
    """

    def __init__(self, info: FileInfo) -> None:
        self._info = info
        self.decoded = 0

    def frames(self, indices: Sequence[int]) -> Iterator[np.ndarray]:
        """See VideoReader."""
        with open_video(self._info.path) as (container, stream):
            walk = _Walk(self._info, container, stream, wanted=indices)
            try:
                for index in indices:
                    yield upright(walk.to(index))
            finally:
                self.decoded += walk.decoded
                walk.end()


class _Walk:
    """Goes through a file forwards: jumps when a keyframe lies between here and the wanted frame, else decodes on.

    On the way, frames that nobody wants and no other frame is predicted from are not decoded. `wanted`: all indices that
    will be asked for; the decoder gets them before they are.
    """

    def __init__(self, info: FileInfo, container: InputContainer, stream: VideoStream, *, wanted: Sequence[int]) -> None:
        self._info, self._container, self._stream = info, container, stream
        self._here, self._whole, self.decoded = -1, 0, 0
        self._damage = ""
        self._wanted = frozenset(info.pts_N[list(wanted)].tolist())
        self._skip = info.codec in SKIPPABLE and not info.counted
        self._skipping = "DEFAULT"
        self._frames = self._decode()

    def to(self, index: int) -> VideoFrame:
        """The frame with this index."""
        jumped = self._jump(index)
        frame = self._find(index)
        if self._skip and (frame is None or self._damage):
            # Spared the frames between, the decoder may not know the order of frames in time: again, over all frames.
            self._skip = False
            jumped = self._restart(self._key_before(index))
            frame = self._find(index)
        if frame is None and jumped and self._here > index:
            # The container's index led past the keyframe: walk there from the beginning.
            self._restart(0)
            frame = self._find(index)
        if frame is not None and not self._damage:
            return frame
        if frame is None and self._here > index and not self._damage:
            raise FrameMissing(index, "the decoder skips it")
        raise FrameMissing(index, self._damage or "the file ends before it", frames_before_end=min(self._whole, index))

    def _find(self, index: int) -> VideoFrame | None:
        """Decode on to the frame; None when another comes after its time, or the end."""
        for position, frame in self._frames:
            self._here = position
            if not self._damage:
                self._whole = position + 1
            if position >= index:
                return frame if position == index else None
        return None

    def end(self) -> None:
        """Let go of the decoder now: walk and generator hold each other, which would wait for the garbage collector."""
        self._frames = iter(())

    def _jump(self, index: int) -> bool:
        """Seek to the last keyframe at or before the frame, when that lies ahead of here; whether it does."""
        key = self._key_before(index)
        if self._info.counted or (self._here >= 0 and self._info.keys_K[key] <= self._info.pts_N[self._here]):
            return False
        return key > 0 and self._restart(key)

    def _key_before(self, index: int) -> int:
        """Which keyframe is the last at or before the frame (0 when none is)."""
        return max(0, int(np.searchsorted(self._info.keys_K, self._info.pts_N[index], side="right")) - 1)

    def _restart(self, key: int) -> bool:
        """Go to a keyframe; whether it is another than the beginning."""
        pts = self._info.keys_K[key] if key else self._info.pts_N[0]
        self._container.seek(int(pts), stream=self._stream, backward=True)
        self._frames, self._damage = self._decode(), ""
        return key > 0

    def _decode(self) -> Iterator[tuple[int, VideoFrame]]:
        """(index in the file, frame). What cannot be decoded damages all frames up to the next whole keyframe."""
        count = -1
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
                found = self._shown(packet) if packet is not None else None
            except FFmpegError as error:
                self._damage = reason(error)
                continue
            if found is None:
                return
            for frame in found:
                assert isinstance(frame, VideoFrame)
                count += 1
                self.decoded += 1
                self._damage = _damage_at(frame, before=self._damage)
                position = count if self._info.counted else self._position(frame.pts)
                if position is not None:
                    yield position, frame

    def _shown(self, packet: Packet) -> Sequence[object]:
        """Give a packet to the decoder -> frames that are ready."""
        codec = self._stream.codec_context
        skip = "NONREF" if self._skip and packet.size and packet.pts not in self._wanted else "DEFAULT"
        if skip != self._skipping:
            codec.skip_frame = self._skipping = skip
        return packet.decode()

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
