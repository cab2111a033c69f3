"""Frames as data URIs, so that a page carries its own pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image


def data_uri(frame_HWC: np.ndarray, *, side: int = 84) -> str:
    """uint8 RGB [H, W, 3] -> data:image/jpeg, the longer side `side` pixels (never enlarged)."""
    image = Image.fromarray(frame_HWC)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def strip(frames_THWC: np.ndarray, times: tuple[float, ...], *, duration: float, cells: int = 8) -> tuple[tuple[float, str], ...]:
    """The clip as `cells` pictures of equal width, so that the strip is its own time axis: (seconds, data URI).

    A cell shows the frame nearest to its middle; with fewer frames than cells, each frame is one cell.
    """
    cells = min(cells, len(frames_THWC))
    middles = (np.arange(cells) + 0.5) * duration / cells
    chosen = np.abs(np.asarray(times)[None] - middles[:, None]).argmin(axis=1)
    return tuple((times[i], data_uri(frames_THWC[i])) for i in chosen)
