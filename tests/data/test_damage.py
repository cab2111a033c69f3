"""Files that are not what they should be: a named error within a time limit, never a wrong or repeated frame in silence."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from av.container import InputContainer

from tests.data.film import POLICY, cut_off, film, scribbled
from vtgrl.core.errors import DataError
from vtgrl.core.types import VideoRef
from vtgrl.data.video.backends import FrameMissing, PyavReader, _Walk, upright
from vtgrl.data.video.decode import decode_clip
from vtgrl.data.video.probe import open_video, probe
from vtgrl.data.video.reader import load_clip
from vtgrl.data.video.types import Clip

pytestmark = pytest.mark.timeout(60)
BACKENDS = pytest.mark.parametrize("backend", ["decord", "pyav"])
FINE = {"g": "50", "crf": "10"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 frames at 10 fps, header first, a keyframe every 5 s."""
    return film(tmp_path_factory.mktemp("whole") / "whole.mp4", frames=200, width=160, height=120, options=FINE)


def decode(path: Path, backend: str) -> Clip:
    return decode_clip(VideoRef(str(path)), policy=POLICY, backend=backend)


@BACKENDS
def test_no_file_folder_empty_text_pipe(tmp_path: Path, backend: str) -> None:
    """Fault 28 and more: each message names the file, and none needs a decoder."""
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("this is no video\n" * 100)
    (tmp_path / "folder.mp4").mkdir()
    os.mkfifo(tmp_path / "pipe.mp4")
    faults = {
        "gone.mp4": "No such file",
        "empty.mp4": "is empty",
        "text.mp4": "not a readable video",
        "folder.mp4": "is a folder",
        "pipe.mp4": "not a regular file",
    }
    for name, message in faults.items():
        with pytest.raises(DataError, match=rf"{name}: .*{message}") as caught:
            load_clip(VideoRef(str(tmp_path / name)), policy=POLICY, backend=backend, timeout_s=30)
        assert "\n" not in str(caught.value)


@BACKENDS
def test_cut_off_files(tmp_path: Path, whole: Path, backend: str) -> None:
    """Fault 28: 60 % of a file, with the header in front and at the end, and in containers that state no frame count."""
    late = film(tmp_path / "late.mp4", frames=200, width=160, height=120, faststart=False)
    webm = film(tmp_path / "w.webm", frames=200, width=160, height=120, codec="libvpx-vp9")
    mkv = film(tmp_path / "m.mkv", frames=200, width=160, height=120)
    faults = {
        cut_off(whole, tmp_path / "early60.mp4", keep=0.6): "the header promises 200 frames",
        cut_off(late, tmp_path / "late60.mp4", keep=0.6): "not a readable video",
        cut_off(webm, tmp_path / "webm60.webm", keep=0.6): r"states 20\.00 s and ends after",
        cut_off(mkv, tmp_path / "mkv60.mkv", keep=0.6): r"states 20\.00 s and ends after",
    }
    for path, message in faults.items():
        with pytest.raises(DataError, match=rf"{path.name}: .*{message}"):
            decode(path, backend)


@BACKENDS
def test_scribbled_file_names_the_frame(tmp_path: Path, whole: Path, backend: str) -> None:
    """Fault 28: bytes overwritten in the middle; the clip before the damage can still be read, bit for bit."""
    bad = scribbled(whole, tmp_path / "bad.mp4", at=0.5, length=400)
    with pytest.raises(DataError, match=r"bad\.mp4: damaged: frame \d+ of 200 \(at \d+\.\d\d s\) cannot be decoded"):
        decode(bad, backend)
    before = VideoRef(str(bad), end=3.0)
    same = decode_clip(VideoRef(str(whole), end=3.0), policy=POLICY, backend=backend)
    np.testing.assert_array_equal(decode_clip(before, policy=POLICY, backend=backend).frames_THWC, same.frames_THWC)


def test_backends_agree_on_damage(tmp_path: Path) -> None:
    """Fault 28: decord alone conceals or repeats frames silently; here it never shows other frames than PyAV does."""
    source = film(tmp_path / "s.mp4", frames=120, width=96, height=80, options={"g": "30", "crf": "16"})
    data, rng = source.read_bytes(), np.random.default_rng(1)
    start, broken = data.index(b"mdat") + 4, 0
    for trial in range(12):
        at = int(rng.integers(start, len(data) - 30))
        path = tmp_path / f"{trial}.mp4"
        path.write_bytes(data[:at] + rng.bytes(30) + data[at + 30 :])
        answers = []
        for backend in ("decord", "pyav"):
            try:
                answers.append(decode(path, backend).frames_THWC.tobytes())
            except DataError as error:
                answers.append(str(error).split(" cannot be decoded")[0])
        assert answers[0] == answers[1]
        broken += isinstance(answers[0], str)
    assert broken >= 6


@BACKENDS
def test_a_few_frames_short(tmp_path: Path, whole: Path, backend: str) -> None:
    """Fault 32: the last samples of the header are not in the file. Accepted, said, times recomputed, ends at a real frame."""
    clip = decode(cut_off(whole, tmp_path / "short.mp4", drop=40), backend)
    assert any("the header promises 200 frames" in note for note in clip.notes)
    frames = round(clip.duration * 10)
    assert 196 <= frames < 200
    assert clip.times[-1] == pytest.approx((frames - 1) / 10)
    assert clip.times == pytest.approx(np.linspace(0, frames - 1, len(clip.times)).round() / 10)
    full = decode_clip(VideoRef(str(whole), end=(frames - 1) / 10), policy=POLICY, backend=backend)
    np.testing.assert_array_equal(clip.frames_THWC, full.frames_THWC)


@BACKENDS
@pytest.mark.parametrize(("more", "readable"), [(2, True), (60, False)])
def test_header_that_counts_frames_it_does_not_have(tmp_path: Path, backend: str, more: int, readable: bool) -> None:
    """Fault 32: an AVI whose two headers say n + 2."""
    path = film(tmp_path / "a.avi", frames=40, codec="mpeg4")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"avih", 24), (b"strh", 40)):
        place = data.index(mark) + offset
        assert struct.unpack_from("<I", data, place) == (40,)
        struct.pack_into("<I", data, place, 40 + more)
    path.write_bytes(data)
    if not readable:
        with pytest.raises(DataError, match=r"a\.avi: damaged: the header promises 100 frames, 40 can be read"):
            decode(path, backend)
        return
    clip = decode(path, backend)
    assert clip.notes == ("the header promises 42 frames, 40 can be read",)
    assert (clip.times[-1], clip.duration) == (pytest.approx(3.9), pytest.approx(4.0))


# --- walking through a file ---------------------------------------------------------------------------------------------


def test_frame_that_never_comes_is_missing_not_replaced(whole: Path) -> None:
    """A frame that the packets announce and the decoder never gives (here: one that does not exist) is not its neighbour."""
    info = probe(str(whole))
    middle = (info.pts_N[100] + info.pts_N[101]) // 2
    wrong = replace(info, pts_N=np.insert(info.pts_N, 101, middle), times_N=np.insert(info.times_N, 101, 10.05))
    reader = PyavReader(wrong)
    assert len(list(reader.frames([100, 102]))) == 2
    with pytest.raises(FrameMissing) as caught:
        list(reader.frames([100, 101]))
    assert (caught.value.index, caught.value.frames_before_end) == (101, None)


class _Overshoots:
    """A container whose index leads too far ahead once, as the index of a badly muxed file does."""

    def __init__(self, container: InputContainer, by: int) -> None:
        self.demux, self._seek, self._by, self.sought = container.demux, container.seek, by, 0

    def seek(self, pts: int, **options: object) -> None:
        self._seek(pts + (self._by if self.sought == 0 else 0), **options)
        self.sought += 1


def test_seek_that_lands_too_far_is_walked_again(whole: Path) -> None:
    info = probe(str(whole))
    with open_video(str(whole)) as (container, stream):
        straight = upright(_Walk(info, container, stream, wanted=[120]).to(120))
    with open_video(str(whole)) as (container, stream):
        astray = _Overshoots(container, int(info.pts_N[60]))
        found = upright(_Walk(info, astray, stream, wanted=[120]).to(120))  # type: ignore[arg-type]
    assert astray.sought == 2
    np.testing.assert_array_equal(found, straight)


def test_seeking_gives_the_frames_of_a_straight_walk(whole: Path) -> None:
    """Several keyframes and B-frames between: jumping over them changes nothing."""
    info = probe(str(whole))
    everything = list(PyavReader(info).frames(range(200)))
    assert len(info.keys_K) >= 4
    for picks in ([0, 199], [49, 50, 51], [3, 101, 102, 160], [150]):
        for index, image in zip(picks, PyavReader(info).frames(picks), strict=True):
            np.testing.assert_array_equal(image, everything[index])
