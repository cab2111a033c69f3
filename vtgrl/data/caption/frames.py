"""A clip as the user turn of a chat: the prompt, then every frame as a JPEG behind its time."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from vtgrl.core.digest import digest
from vtgrl.core.registry import NoConfig
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.prompts.dense_captions import TEXT, dense_captions
from vtgrl.data.prompts.types import VIDEO
from vtgrl.data.video.types import Clip

QUALITY = 85
"""Of the JPEG files."""
FRAMES_TEXT = "The video is given as {count} frames, each behind its time."
FRAME_TEXT = "{time:.2f} s:"
REFUSED_TEXT = "An earlier answer could not be used: {reason}. Answer with the JSON alone."

PROMPT_VERSION = digest([TEXT, FRAMES_TEXT, FRAME_TEXT])
"""Changes with the wording, so answers to another wording are never taken for answers to this one."""

Part = dict[str, Any]


def user_parts(clip: Clip, *, refused: str = "") -> list[Part]:
    """Content of the user turn (OpenAI chat completions). `refused`: what was wrong with the answer before."""
    sample = Sample(id=clip.id, task="qa", query="", video=VideoRef(clip.id))
    parts: list[Part] = []
    for part in dense_captions(sample, duration=clip.duration, config=NoConfig()).user:
        parts += _frames(clip) if part == VIDEO else [_text(part)]
    return [*parts, _text(REFUSED_TEXT.format(reason=refused))] if refused else parts


def _frames(clip: Clip) -> list[Part]:
    shown = len(clip.times) - clip.repeated
    parts = [_text(FRAMES_TEXT.format(count=shown))]
    for frame_HWC, time in zip(clip.frames_THWC[:shown], clip.times, strict=False):
        image = {"type": "image_url", "image_url": {"url": _data_url(frame_HWC)}}
        parts += [_text(FRAME_TEXT.format(time=time)), image]
    return parts


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _data_url(frame_HWC: np.ndarray) -> str:
    buffer = io.BytesIO()
    Image.fromarray(frame_HWC).save(buffer, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
