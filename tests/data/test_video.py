"""Decoding whole files: the same frames and true times from both backends, whatever the container says."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import resize as torchvision_resize

from tests.data.film import CORNER, POLICY, film, picture, turned
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.types import VideoRef
from vtgrl.data.video.backends import check_backend
from vtgrl.data.video.cut import is_already_cut, resolve_cut
from vtgrl.data.video.decode import decode_clip
from vtgrl.data.video.resize import resize
from vtgrl.data.video.types import Clip, FramePolicy

BACKENDS = ("decord", "pyav")
EVERY_FRAME = FramePolicy(fps=1000, min_frames=2, max_frames=768, min_pixels=784, max_pixels=602112, total_pixels=10**9, unit=2)


def both(ref: VideoRef | Path, policy: FramePolicy = POLICY) -> Clip:
    """The clip, after checking that the two backends agree to the last bit."""
    ref = VideoRef(str(ref)) if isinstance(ref, Path) else ref
    one, other = (decode_clip(ref, policy=policy, backend=backend) for backend in BACKENDS)
    np.testing.assert_array_equal(one.frames_THWC, other.frames_THWC)
    assert (one.times, one.duration, one.fps, one.id) == (other.times, other.duration, other.fps, other.id)
    assert len(one.times) == len(one.frames_THWC)
    assert len(one.times) % 2 == 0
    assert all(a < b for a, b in zip(one.times, one.times[1:], strict=False))
    return one


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "libx264"), ("a.mkv", "libx264"), ("a.mp4", "libx265"), ("a.webm", "libvpx-vp9"), ("b.webm", "libvpx"), ("a.avi", "mpeg4")],
)
def test_containers_with_and_without_counts(tmp_path: Path, name: str, codec: str) -> None:
    """Fault 30: webm and mkv state no frame count; both backends find all 40 frames."""
    clip = both(film(tmp_path / name, frames=40, codec=codec), EVERY_FRAME)
    assert clip.frames_THWC.shape == (40, 48, 64, 3)
    assert clip.times == pytest.approx([k / 10 for k in range(40)])
    assert (clip.duration, clip.source_fps, clip.notes) == (pytest.approx(4.0), pytest.approx(10.0), ())
    for index in (0, 17, 39):
        wanted = picture(index, width=64, height=48)
        assert np.abs(clip.frames_THWC[index].astype(int) - wanted).mean() < 12


def test_stream_without_any_time(tmp_path: Path) -> None:
    """Fault 30: a bare H.264 stream has neither counts nor times; frames are counted and shown at the stated rate."""
    clip = both(film(tmp_path / "a.h264", frames=20, fps=25, container="h264", options={"bf": "0"}), EVERY_FRAME)
    assert len(clip.times) == 20
    assert clip.duration == pytest.approx(20 / clip.source_fps)


class _OneWay(io.RawIOBase):
    """A file that can only be written on, as a network stream: the muxer cannot go back to fill in duration and index."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._file.write(data)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
        super().close()


def test_stream_copied_file_without_duration(tmp_path: Path) -> None:
    """Fault 30: packets copied into a live Matroska stream: no duration, no count, no index."""
    source, path = film(tmp_path / "a.mp4", frames=40), tmp_path / "live.mkv"
    sink = _OneWay(path)
    with av.open(str(source)) as given, av.open(sink, "w", format="matroska", options={"live": "1"}) as out:
        stream = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.size:
                packet.stream = stream
                out.mux(packet)
    sink.close()
    with av.open(str(path)) as copy:
        assert (copy.duration, copy.streams.video[0].frames, copy.streams.video[0].metadata.get("DURATION")) == (None, 0, None)
    clip = both(path, EVERY_FRAME)
    assert clip.times == pytest.approx([k / 10 for k in range(40)])
    np.testing.assert_array_equal(clip.frames_THWC, both(source, EVERY_FRAME).frames_THWC)


def test_av1_is_read_and_said_plainly(tmp_path: Path) -> None:
    """Fault 30: decord's ffmpeg knows no AV1."""
    path = film(tmp_path / "a.mp4", frames=20, codec="libsvtav1")
    clip = decode_clip(VideoRef(str(path)), policy=POLICY, backend="decord")
    assert clip.notes == ("decord cannot open this file (codec av1); read with pyav",)
    np.testing.assert_array_equal(clip.frames_THWC, decode_clip(VideoRef(str(path)), policy=POLICY, backend="pyav").frames_THWC)


def test_low_and_odd_frame_rate(tmp_path: Path) -> None:
    """9.533 fps: 2 frames a second are not half a second apart, and the times say so."""
    clip = both(film(tmp_path / "a.mp4", frames=96, fps=Fraction(10000, 1049)))
    picked = np.linspace(0, 95, 20).round()
    assert clip.times == pytest.approx(picked * 0.1049, abs=1e-9)
    assert clip.fps == pytest.approx(19 / (95 * 0.1049))


def test_variable_frame_rate(tmp_path: Path) -> None:
    """Frames at irregular times, with B-frames stored out of order: every frame keeps its own time."""
    times_ms = np.cumsum(np.random.default_rng(0).integers(20, 200, 60))
    path = film(tmp_path / "a.mp4", frames=60, times_ms=times_ms.tolist(), options={"bf": "2"})
    assert both(path, EVERY_FRAME).times == pytest.approx((times_ms - times_ms[0]) / 1000, abs=1e-6)
    sampled = both(path)
    picked = np.linspace(0, 59, len(sampled.times)).round().astype(int)
    assert sampled.times == pytest.approx((times_ms[picked] - times_ms[0]) / 1000, abs=1e-6)


def test_cut_in_the_middle_of_a_frame(tmp_path: Path) -> None:
    """A cut from 2.04 s to 7.25 s at 10 fps: times count from the cut's start, not from the first frame in it."""
    path = film(tmp_path / "a.mp4", frames=100)
    clip = both(VideoRef(str(path), start=2.04, end=7.25), EVERY_FRAME)
    assert clip.times == pytest.approx([k / 10 - 2.04 for k in range(21, 73)])
    assert clip.duration == pytest.approx(5.21)
    whole = both(path, EVERY_FRAME)
    np.testing.assert_array_equal(clip.frames_THWC[0], whole.frames_THWC[21])


def test_start_of_zero_is_a_start(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", frames=100)
    clip = both(VideoRef(str(path), start=0.0, end=2.0), EVERY_FRAME)
    assert (clip.times[0], clip.duration) == (0.0, 2.0)
    assert (len(clip.times), clip.times[-1]) == (20, 2.0)  # of the 21 frames in the cut, both ends are shown


@pytest.mark.parametrize(("frames", "shown", "repeated"), [(1, 2, 1), (2, 2, 0), (3, 2, 0), (5, 4, 0), (31, 30, 0)])
def test_few_and_odd_frames(tmp_path: Path, frames: int, shown: int, repeated: int) -> None:
    """Faults 22 and 23: an even count always; only a single frame is shown twice, a frame interval later."""
    clip = both(film(tmp_path / "a.mp4", frames=frames), FramePolicy(**{**vars_of(POLICY), "min_frames": 32, "max_frames": 32}))
    assert (len(clip.frames_THWC), clip.repeated) == (shown, repeated)
    if repeated:
        np.testing.assert_array_equal(clip.frames_THWC[0], clip.frames_THWC[1])
        assert clip.times == pytest.approx([0.0, 0.1])


def vars_of(policy: FramePolicy) -> dict[str, float]:
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}


@pytest.mark.parametrize("size", [(64, 32), (64, 48), (98, 54), (178, 100)])
@pytest.mark.parametrize(("degrees", "corner"), [(90, (0, -1)), (180, (-1, -1)), (270, (-1, 0))])
def test_display_rotation(tmp_path: Path, size: tuple[int, int], degrees: int, corner: tuple[int, int]) -> None:
    """Fault 29: upright on both backends; the red corner goes where a clockwise turn takes it."""
    width, height = size
    clip = both(turned(film(tmp_path / "a.mp4", frames=4, width=width, height=height), tmp_path / "b.mp4", degrees), EVERY_FRAME)
    high, wide = clip.frames_THWC.shape[1:3]
    assert (high > wide) == (degrees != 180)
    assert max(high, wide) / min(high, wide) == pytest.approx(width / height, rel=0.05)
    row, column = (2 if place == 0 else -3 for place in corner)
    assert np.abs(clip.frames_THWC[0, row, column].astype(int) - CORNER).max() < 25
    assert clip.notes == ()


def test_times_count_from_the_first_frame(tmp_path: Path) -> None:
    """A file whose first frame is stored at 2.5 s starts at 0 for a viewer, and for us."""
    path = film(tmp_path / "a.mkv", frames=20, times_ms=[2500 + 100 * k for k in range(20)])
    assert both(path, EVERY_FRAME).times[:2] == (0.0, pytest.approx(0.1))


def test_files_without_video(tmp_path: Path) -> None:
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        out.mux(stream.encode(frame))
        out.mux(stream.encode())
    with pytest.raises(DataError, match=r"sound\.mp4: holds no video stream"):
        decode_clip(VideoRef(str(path)), policy=POLICY, backend="decord")


def test_unknown_backend_is_named() -> None:
    with pytest.raises(ConfigError, match="cv2"):
        check_backend("cv2")


@pytest.mark.parametrize("size", [(28, 28), (56, 84), (84, 140), (196, 280)])
def test_resize_is_torchvisions(size: tuple[int, int]) -> None:
    """qwen-vl-utils resizes with torchvision's antialiased bicubic; ours differs by a rounding tie at most."""
    image = np.random.default_rng(0).integers(0, 256, (97, 131, 3), dtype=np.uint8)
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None]
    wanted = torchvision_resize(tensor, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True)[0].permute(1, 2, 0).numpy()
    difference = np.abs(resize(image, height=size[0], width=size[1]).astype(int) - wanted)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


# --- cuts that may have been made already (../shared/specs/taro.md, E6) -------------------------------------------


@pytest.mark.parametrize(
    ("length", "start", "end", "duration", "already"),
    [
        (45.7, 39.0, 84.7, 45.7, True),
        (45.9, 39.0, 84.7, 45.7, True),
        (211.0, 39.0, 84.7, 45.7, False),
        (84.7, 39.0, 84.7, 45.7, False),
        (10.8, 120.6, 131.4, 10.8, True),
        (300.0, 0.0, 30.0, 30.0, False),
        (30.1, 0.2, 30.2, 30.0, False),  # start so small that both fit: the nearer one
    ],
)
def test_the_real_length_tells_whether_a_file_is_cut(length: float, start: float, end: float, duration: float, already: bool) -> None:
    ref = VideoRef("x.mp4", start, end, duration, maybe_cut=True)
    assert is_already_cut(ref, length) == already
    expected = (0.0, length) if already else (start, min(end, length))
    assert resolve_cut(ref, length)[:2] == expected
    assert not is_already_cut(VideoRef("x.mp4", start, end, duration), length)


def test_neither_clip_nor_whole_names_the_file() -> None:
    with pytest.raises(DataError, match=r"x\.mp4: .*120\.60 s to 131\.40 s, but the file is 60\.00 s long"):
        resolve_cut(VideoRef("x.mp4", 120.6, 131.4, 10.8, maybe_cut=True), 60.0)


def test_cut_past_the_end_is_said() -> None:
    start, end, notes = resolve_cut(VideoRef("x.mp4", 5.0, 40.0), 30.0)
    assert (start, end) == (5.0, 30.0)
    assert notes == ("the row's cut ends at 40.00 s, the file at 30.00 s; cut there",)
    with pytest.raises(DataError, match="is it the right file"):
        resolve_cut(VideoRef("x.mp4", 31.0, 40.0), 30.0)


def test_another_length_than_stated_is_said() -> None:
    assert "the row states 100.00 s, the clip is 30.00 s long" in resolve_cut(VideoRef("x.mp4", duration=100.0), 30.0)[2][0]
    assert resolve_cut(VideoRef("x.mp4", duration=30.96), 31.0)[2] == ()


def test_cut_file_and_whole_file_give_the_same_clip(tmp_path: Path) -> None:
    """The same row on the whole video and on a file that is already the clip: the same seconds are shown."""
    whole = film(tmp_path / "whole.mp4", frames=120)
    row = {"start": 3.0, "end": 9.0, "duration": 6.0, "maybe_cut": True}
    from_whole = both(VideoRef(str(whole), **row), EVERY_FRAME)
    clip = film(tmp_path / "clip.mp4", frames=60)
    from_clip = both(VideoRef(str(clip), **row), EVERY_FRAME)
    assert from_whole.duration == from_clip.duration == pytest.approx(6.0)
    assert from_clip.times[:2] == pytest.approx(from_whole.times[:2]) == (0.0, 0.1)


# --- real files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "duration", "rate", "frames"),
    [("3MSZA", 31.0, 30.0, 62), ("OHOFG", 35.1415, 10000 / 1049, 70), ("video1", 22.0278, 22.29, 44)],
)
def test_real_videos(shared_dir: Path, name: str, duration: float, rate: float, frames: int) -> None:
    clip = both(shared_dir / "data/videos" / f"{name}.mp4")
    assert clip.duration == pytest.approx(duration, abs=1e-4)
    assert clip.source_fps == pytest.approx(rate, abs=1e-3)
    assert len(clip.times) == frames
    steps = np.array(clip.times) * rate
    np.testing.assert_allclose(steps, steps.round(), atol=1e-3)  # every time is one of a real frame
