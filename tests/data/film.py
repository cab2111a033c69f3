"""Small video files made on the spot: any codec and container, chosen frame times, turned, cut off, scribbled over."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from vtgrl.data.video.types import FramePolicy

POLICY = FramePolicy(fps=2, min_frames=4, max_frames=768, min_pixels=3136, max_pixels=602112, total_pixels=2809856, unit=28)
CORNER = (200, 0, 0)
QUIET = {"x265-params": "log-level=none"}


def picture(index: int, *, width: int, height: int) -> np.ndarray:
    """Red upper left corner, dark rest, and a bright bar whose place tells the frame's number."""
    image_HWC = np.full((height, width, 3), 40, np.uint8)
    image_HWC[: height // 4, : width // 4] = CORNER
    left = width // 4 + index * 3 % (width // 2)
    image_HWC[height // 2 :, left : left + width // 8] = (40, 240, 240)
    return image_HWC


def film(
    path: Path,
    *,
    frames: int,
    width: int = 64,
    height: int = 48,
    fps: float | Fraction = 10,
    times_ms: Sequence[int] | None = None,
    codec: str = "libx264",
    container: str | None = None,
    options: dict[str, str] | None = None,
    faststart: bool = True,
) -> Path:
    """Write a clip; `times_ms` gives each frame its own presentation time (a variable frame rate)."""
    flags = {"movflags": "faststart"} if faststart and path.suffix == ".mp4" else {}
    with av.open(str(path), "w", format=container, options=flags) as out:
        stream = out.add_stream(codec, rate=Fraction(fps).limit_denominator(10000))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {**(QUIET if codec == "libx265" else {}), **(options or {})}
        stream.codec_context.thread_count = 1
        if times_ms is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index, width=width, height=height), format="rgb24")
            frame.pts = index
            if times_ms is not None:
                frame.pts, frame.time_base = int(times_ms[index]), Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return path


def turned(source: Path, path: Path, degrees: int) -> Path:
    """The same mp4 with a display matrix that turns it clockwise (bytes of the track header)."""
    data = bytearray(source.read_bytes())
    header = data.index(b"tkhd") + 4
    place = header + 4 + (20 if data[header] == 0 else 32) + 16
    a, b, c, d = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[degrees]
    one = 1 << 16
    struct.pack_into(">9i", data, place, a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path


def cut_off(source: Path, path: Path, *, keep: float | None = None, drop: int = 0) -> Path:
    """The first part of a file: a share of its bytes, or all but the last `drop`."""
    data = source.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)] if keep is not None else data[:-drop])
    return path


def scribbled(source: Path, path: Path, *, at: float, length: int) -> Path:
    """The same file with random bytes from `at` (share of its length) on."""
    data = bytearray(source.read_bytes())
    start = int(len(data) * at)
    data[start : start + length] = np.random.default_rng(0).bytes(length)
    path.write_bytes(data)
    return path
