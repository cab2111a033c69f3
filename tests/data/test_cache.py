"""The frame cache: the same frames bit for bit, whole entries only, a bound in bytes, any number of readers and writers."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.film import POLICY, film
from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.types import VideoRef
from vtgrl.data.video import cache as cache_module
from vtgrl.data.video.cache import GIGABYTE, FrameCache, open_cache
from vtgrl.data.video.decode import clip_id, decode_clip
from vtgrl.data.video.reader import ClipLoader
from vtgrl.data.video.types import Clip

pytestmark = pytest.mark.timeout(120)
MB = 2**20


def made(number: int, *, size: int = MB) -> Clip:
    """A clip of `size` bytes of frames that follow from its number, and odd facts."""
    frames = np.random.default_rng(number).integers(0, 256, (2, size // 6, 1, 3), dtype=np.uint8)
    return Clip(f"{number:024x}", frames, (0.1 + 0.2, 1 / 3), 3.0, 0.7, 29.97, repeated=1, notes=("größer", 'a "note"'))


def _facts(clip: Clip | None) -> object:
    if clip is None:
        return None
    facts = {k: v for k, v in vars(clip).items() if k != "frames_THWC"}
    return facts, clip.frames_THWC.shape, clip.frames_THWC.dtype, clip.frames_THWC.tobytes()


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name != "ledger")


@pytest.fixture
def cache(tmp_path: Path) -> FrameCache:
    """Room for ten clips of 1 MB and a little."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return FrameCache(folder, limit=10 * MB + 8192)


# --- what comes out ---------------------------------------------------------------------------------------------------------


def test_clip_comes_back_as_it_was(cache: FrameCache) -> None:
    clip = made(1)
    assert cache.get(clip.id) is None
    cache.put(clip)
    back = cache.get(clip.id)
    assert _facts(back) == _facts(clip)
    assert back is not None
    back.frames_THWC[:] = 0  # a reader's frames are its own
    assert _facts(cache.get(clip.id)) == _facts(clip)


@pytest.mark.parametrize("backend", ["decord", "pyav"])
@pytest.mark.parametrize("workers", [0, 2])
def test_frames_are_the_same_with_and_without(tmp_path: Path, backend: str, workers: int) -> None:
    paths = [film(tmp_path / f"{k}.mp4", frames=40 + k, options={"bf": "2"}) for k in range(3)]
    refs = [VideoRef(str(paths[0]), start=0.55, end=3.0), *(VideoRef(str(path)) for path in paths)]
    options = {"backend": backend, "workers": workers}
    with ClipLoader(POLICY, **options) as loader:
        plain = [loader.load(ref) for ref in refs]
    for times in (0, 1, 2):
        with ClipLoader(POLICY, cache=open_cache(tmp_path / "frames", gigabytes=0.1), **options) as loader:
            loader.prefetch(refs)
            assert [_facts(loader.load(ref)) for ref in refs] == [_facts(clip) for clip in plain]
            assert (loader.decoded, loader.cached) == ((0, 4) if times else (4, 0))
            assert (loader._front.pid is None) == (times > 0 or workers > 0)  # no process is started for what is there


def test_changed_file_at_the_same_path_is_another_clip(tmp_path: Path) -> None:
    ref = VideoRef(str(film(tmp_path / "a.mp4", frames=40)))
    cache = open_cache(tmp_path / "frames", gigabytes=0.1)
    with ClipLoader(POLICY, cache=cache) as loader:
        before = loader.load(ref)
        film(tmp_path / "a.mp4", frames=30)
        after = loader.load(ref)
        assert loader.decoded == 2
    assert before.duration == pytest.approx(4.0)
    assert _facts(after) == _facts(decode_clip(ref, policy=POLICY, backend="pyav"))
    assert _facts(cache.get(before.id)) == _facts(before)


def test_other_policy_is_another_clip(tmp_path: Path) -> None:
    ref = VideoRef(str(film(tmp_path / "a.mp4", frames=40)))
    cache = open_cache(tmp_path / "frames", gigabytes=0.1)
    with ClipLoader(POLICY, cache=cache) as one, ClipLoader(replace(POLICY, fps=1), cache=cache) as other:
        assert len(one.load(ref).times) == 8
        assert len(other.load(ref).times) == 4
        assert len(one.load(ref).times) == 8
        assert (one.decoded, other.decoded) == (1, 1)


# --- damage -----------------------------------------------------------------------------------------------------------------


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "zeros":
        data[-4096:] = bytes(4096)
    elif how == "facts":
        place = data.index(b"29.97")
        data[place : place + 5] = b"19.97"
    elif how == "longer":
        data += b"\0"
    elif how == "foreign":
        data[:8] = b"notaclip"
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "empty", "zeros", "facts", "longer", "foreign"])
def test_damaged_entry_is_counted_said_and_removed(cache: FrameCache, how: str, caplog: pytest.LogCaptureFixture) -> None:
    clip = made(3)
    cache.put(clip)
    spoil(cache._path(clip.id), how)
    assert cache.get(clip.id) is None
    assert cache.damaged == 1
    assert f"{clip.id}{cache_module.ENDING} is damaged" in caplog.text
    assert "1 such so far" in caplog.text
    cache.put(clip)
    assert _facts(cache.get(clip.id)) == _facts(clip)


def test_entry_under_another_name_is_not_that_clip(cache: FrameCache) -> None:
    cache.put(made(1))
    cache._path(made(1).id).rename(cache._path(made(2).id))
    assert cache.get(made(2).id) is None
    assert cache.damaged == 1


def test_damaged_entry_is_decoded_again(tmp_path: Path) -> None:
    ref = VideoRef(str(film(tmp_path / "a.mp4", frames=40)))
    cache = open_cache(tmp_path / "frames", gigabytes=0.1)
    with ClipLoader(POLICY, cache=cache) as loader:
        clip = loader.load(ref)
        spoil(cache._path(clip.id), "zeros")
        assert _facts(loader.load(ref)) == _facts(clip)
        assert _facts(loader.load(ref)) == _facts(clip)
        assert (loader.decoded, loader.cached, cache.damaged) == (2, 1, 1)


# --- the bound ----------------------------------------------------------------------------------------------------------------


def test_longest_unused_leave_and_the_bound_holds(
    cache: FrameCache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = [made(k) for k in range(14)]
    for k, clip in enumerate(clips[:10]):
        cache.put(clip)
        os.utime(cache._path(clip.id), ns=(k, k))
    assert all(cache.get(clip.id) for clip in (clips[0], clips[2]))
    assert "full" not in caplog.text
    cache.put(clips[10])
    assert bytes_in(cache.folder) <= cache.limit
    gone = [k for k in range(11) if not cache._path(clips[k].id).exists()]
    assert gone == [1, 3]  # down to nine tenths, and 0 and 2 have just been used
    assert caplog.text.count("raise video.cache_gb") == 1
    write = cache._write

    def watched(path: Path, parts: tuple[bytes, memoryview]) -> None:
        assert bytes_in(cache.folder) + sum(map(len, parts)) <= cache.limit, "room is made before the clip is written, not after"
        write(path, parts)

    monkeypatch.setattr(cache, "_write", watched)
    for clip in clips[11:]:
        cache.put(clip)
        assert cache.get(clip.id) is not None
    assert caplog.text.count("raise video.cache_gb") == 1


def test_clip_larger_than_the_cache_is_said(cache: FrameCache, caplog: pytest.LogCaptureFixture) -> None:
    cache.put(made(1))
    cache.put(made(2, size=12 * MB))
    assert "a clip of 0.01 GB has no room" in caplog.text
    assert cache.get(made(1).id) is not None


def test_entries_of_an_earlier_run_count(cache: FrameCache) -> None:
    for k in range(9):
        cache.put(made(k))
    again = FrameCache(cache.folder, limit=5 * MB)
    assert again.measure() == bytes_in(cache.folder)
    again.put(made(20))
    assert bytes_in(cache.folder) <= 5 * MB
    assert again.get(made(20).id) is not None


def test_other_files_are_left_alone(cache: FrameCache) -> None:
    (cache.folder / "notes.txt").write_text("mine")
    for k in range(20):
        cache.put(made(k))
    assert (cache.folder / "notes.txt").read_text() == "mine"


def test_an_open_entry_stays_readable_when_it_leaves(cache: FrameCache) -> None:
    cache.put(made(0))
    with cache._path(made(0).id).open("rb") as file:
        first = file.read(100)
        for k in range(1, 21):
            cache.put(made(k))
        assert not cache._path(made(0).id).exists()
        assert len(first + file.read()) > MB


def _hammer(folder: str, seed: int, answers: multiprocessing.Queue[tuple[int, int, int]]) -> None:
    """Read and write 16 clips at random where five have room -> wrong, found, damaged."""
    cache = FrameCache(Path(folder), limit=5 * MB)
    wrong = found = 0
    for number in np.random.default_rng(seed).integers(0, 16, 150):
        clip = cache.get(made(int(number), size=MB).id)
        if clip is None:
            cache.put(made(int(number)))
        else:
            found += 1
            wrong += _facts(clip) != _facts(made(int(number)))
    answers.put((wrong, found, cache.damaged))


def test_many_processes_read_and_write_at_once(tmp_path: Path) -> None:
    """Never a wrong or partial clip, never more bytes than allowed, while entries come and go under the readers."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=_hammer, args=(str(tmp_path), seed, answers)) for seed in range(4)]
    for process in processes:
        process.start()
    watcher, most = FrameCache(tmp_path, limit=0), 0
    while any(process.is_alive() for process in processes):
        with watcher._alone():  # between two writes
            most = max(most, bytes_in(tmp_path))
        processes[0].join(0.02)
    results = [answers.get(timeout=30) for _ in processes]
    assert [process.exitcode for process in processes] == [0] * 4
    assert [(wrong, damaged) for wrong, _, damaged in results] == [(0, 0)] * 4
    assert all(found > 10 for _, found, _ in results)
    assert 3 * MB < most <= 5 * MB
    assert int((tmp_path / "ledger").read_text()) == bytes_in(tmp_path)


# --- trouble ------------------------------------------------------------------------------------------------------------------


def test_killed_writer_leaves_nothing_in_the_way(cache: FrameCache) -> None:
    """Killed in the middle of a write: no entry, no lock, and its place is used again."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.data.test_cache import MB, made\n"
        "from vtgrl.data.video.cache import FrameCache\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"FrameCache(Path({str(cache.folder)!r}), limit=20 * MB).put(made(1))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert (cache.folder / "writing").exists()
    assert cache.get(made(1).id) is None
    cache.put(made(1))
    assert _facts(cache.get(made(1).id)) == _facts(made(1))
    assert not (cache.folder / "writing").exists()


def test_lock_that_is_never_let_go_costs_the_entry_not_the_run(
    cache: FrameCache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "LOCK_WAIT_S", 0.05)
    cache.put(made(1))
    with (cache.folder / "ledger").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        cache.put(made(2))
        assert "another process has held it" in caplog.text
        assert cache.get(made(1).id) is not None
    cache.put(made(3))
    assert [cache.get(made(k).id) is not None for k in (1, 2, 3)] == [True, False, True]


def test_disk_full_is_one_line_and_leaves_no_half(cache: FrameCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(made(1))

    def full(*_: object) -> None:
        (cache.folder / "writing").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(RunError, match=r"frame cache .*: No space left on device; free space, lower video\.cache_gb, or") as caught:
            cache.put(made(2))
    assert "\n" not in str(caught.value)
    assert sorted(file.name for file in cache.folder.iterdir()) == [cache._path(made(1).id).name, "ledger"]
    cache.put(made(2))
    assert cache.get(made(2).id) is not None


def test_folder_that_cannot_be_used_is_a_line_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"video\.cache_dir=.*file/frames: Not a directory; name a folder"):
        open_cache(tmp_path / "file" / "frames", gigabytes=0.1)
    with pytest.raises(ConfigError, match=r"video\.cache_dir=/proc/frames: .*; name a folder"):  # nobody can write there, root neither
        open_cache("/proc/frames", gigabytes=0.1)
    with pytest.raises(ConfigError, match=r"video\.cache_gb=1e\+07: the disk of .* has room for [\d.]+; lower it or free space"):
        open_cache(tmp_path / "frames", gigabytes=1e7)


def test_size_is_in_gib_and_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = open_cache("~/a/b", gigabytes=0.5)
    assert (cache.folder, cache.limit) == (tmp_path / "a" / "b", GIGABYTE // 2)
    assert cache.folder.is_dir()


def test_full_disk_reaches_whoever_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from a thread that loads ahead."""
    caplog.set_level(logging.WARNING)
    ref = VideoRef(str(film(tmp_path / "a.mp4", frames=40)))
    cache = open_cache(tmp_path / "frames", gigabytes=0.1)
    monkeypatch.setattr(cache, "_write", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with ClipLoader(POLICY, cache=cache, workers=1) as loader:
        loader.prefetch([ref])
        with pytest.raises(RunError, match="Read-only file system"):
            loader.load(ref)
    assert cache.get(clip_id(ref, POLICY)) is None
