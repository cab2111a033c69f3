"""Frames that nobody wants and no frame is predicted from are not decoded; nothing else changes, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.film import film
from vtgrl.data.video.backends import PyavReader, _Walk, upright
from vtgrl.data.video.probe import open_video, probe

X264 = {
    "default": {},
    "pyramid": {"bf": "8", "x264-params": "b-pyramid=normal:b-adapt=2"},
    "strict": {"bf": "5", "x264-params": "b-pyramid=strict"},
    "flat": {"bf": "3", "x264-params": "b-pyramid=none"},
    "open": {"g": "25", "bf": "3", "x264-params": "open-gop=1"},
    "refs": {"x264-params": "ref=8:weightp=2:bframes=4:direct=temporal"},
    "fields": {"bf": "2", "flags": "+ildct+ilme"},
    "no-b": {"bf": "0"},
}


def moving(path: Path, **options: dict[str, str]) -> Path:
    return film(path, frames=90, width=96, height=64, options={"crf": "12", "g": "60"} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", X264)
def test_frames_are_those_of_decoding_everything(tmp_path: Path, kind: str) -> None:
    path = moving(tmp_path / "a.mp4", **X264[kind])  # type: ignore[arg-type]
    info = probe(str(path))
    whole = PyavReader(info)
    everything = list(whole.frames(range(90)))
    assert whole.decoded == 90
    for seed in range(4):
        picks = sorted(np.random.default_rng(seed).choice(90, 8, replace=False).tolist())
        reader = PyavReader(info)
        for index, image in zip(picks, reader.frames(picks), strict=True):
            np.testing.assert_array_equal(image, everything[index], err_msg=f"frame {index} of {picks}")
        assert reader.decoded <= 90, "no second walk"
        assert kind == "no-b" or reader.decoded < 80


@pytest.mark.parametrize("codec", ["libx265", "mpeg4"])
def test_other_codecs_leave_nothing_out(tmp_path: Path, codec: str) -> None:
    """HEVC: what one layer calls unused, another may use."""
    options = {"g": "60", "x265-params": "log-level=none:keyint=60:min-keyint=60:scenecut=0"}
    path = film(tmp_path / "a.mp4", frames=60, codec=codec, options=options)
    reader = PyavReader(probe(str(path)))
    list(reader.frames([3, 59]))
    assert reader.decoded == 60


def test_frame_that_was_left_out_is_fetched_again(tmp_path: Path) -> None:
    """The walk did not know that it would be wanted, as when a decoder reports frames late: it goes back and leaves out none."""
    info = probe(str(moving(tmp_path / "a.mp4", bf="3")))
    everything = list(PyavReader(info).frames(range(90)))
    with open_video(info.path) as (container, stream):
        walk = _Walk(info, container, stream, wanted=[0])
        found = [upright(walk.to(index)) for index in range(5, 70)]
        walk.end()
    assert walk.decoded > 65
    for image, wanted in zip(found, everything[5:70], strict=True):
        np.testing.assert_array_equal(image, wanted)
