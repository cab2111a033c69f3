"""A clip as one file: mark and checksum, then facts (JSON), then frames."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from vtgrl.data.video.types import Clip

HEAD = struct.Struct("<8sII")
"""Mark, CRC-32 of all that follows, length of the facts."""
MARK = b"vtgrlclp"


class Damaged(Exception):
    """A file that does not hold what was written."""


def encode(clip: Clip) -> tuple[bytes, memoryview]:
    """Head with facts, and frames (not copied): the file is one after the other."""
    facts: dict[str, Any] = {f.name: getattr(clip, f.name) for f in fields(clip) if f.name != "frames_THWC"}
    text = json.dumps(facts | {"shape": clip.frames_THWC.shape}).encode()
    frames = memoryview(np.ascontiguousarray(clip.frames_THWC).reshape(-1))
    return HEAD.pack(MARK, zlib.crc32(frames, zlib.crc32(text)), len(text)) + text, frames


def read(path: Path, *, identity: str) -> Clip:
    """The clip in a file; its frames are this process's own.

    Raises:
        OSError: it cannot be read.
        Damaged: something is missing or changed, or it is another clip.
    """
    data = np.fromfile(path, np.uint8)
    if len(data) < HEAD.size:
        raise Damaged(f"{len(data)} bytes long")
    mark, checksum, length = HEAD.unpack(data[: HEAD.size].tobytes())
    if mark != MARK:
        raise Damaged("not a clip")
    if zlib.crc32(data[HEAD.size :]) != checksum:
        raise Damaged(f"the checksum of its {len(data)} bytes is another")
    frames = data[HEAD.size + length :]
    facts = json.loads(data[HEAD.size : HEAD.size + length].tobytes())
    if facts["id"] != identity:
        raise Damaged(f"it is clip {facts['id']}")
    shape = facts.pop("shape")
    return Clip(**facts | {"frames_THWC": frames.reshape(shape), "times": tuple(facts["times"]), "notes": tuple(facts["notes"])})
