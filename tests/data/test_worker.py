"""The decoding processes: stopped when they hang, replaced when they die, never inherited, bounded in memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import decord
import numpy as np
import pytest

from tests.data.film import POLICY, film
from vtgrl.core.errors import DataError
from vtgrl.core.types import VideoRef
from vtgrl.data.video.decode import decode_clip
from vtgrl.data.video.reader import ClipLoader, clip_id, load_clip
from vtgrl.data.video.types import Clip, FramePolicy
from vtgrl.data.video.worker import DecodeWorker

pytestmark = pytest.mark.timeout(120)
FOUR = FramePolicy(fps=0.01, min_frames=4, max_frames=4, min_pixels=3136, max_pixels=3136, total_pixels=10**6, unit=28)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[VideoRef]:
    folder = tmp_path_factory.mktemp("clips")
    return [VideoRef(str(film(folder / f"{k}.mp4", frames=20 + k))) for k in range(10)]


def load(worker: DecodeWorker, ref: VideoRef, *, timeout_s: float = 60.0) -> Clip:
    return worker.load(ref, policy=POLICY, backend="decord", timeout_s=timeout_s)


def test_same_clip_as_in_process(clips: list[VideoRef]) -> None:
    clip = load_clip(clips[3], policy=POLICY)
    here = decode_clip(clips[3], policy=POLICY, backend="decord")
    np.testing.assert_array_equal(clip.frames_THWC, here.frames_THWC)
    assert (clip.times, clip.id, clip.duration) == (here.times, here.id, here.duration)


def test_worker_is_kept_and_replaced_after_death(clips: list[VideoRef]) -> None:
    worker = DecodeWorker()
    load(worker, clips[0])
    first = worker.pid
    load(worker, clips[1])
    assert worker.pid == first
    assert first is not None
    os.kill(first, signal.SIGKILL)
    time.sleep(0.2)
    assert len(load(worker, clips[2]).times) == 4
    assert worker.pid != first
    worker.close()
    assert worker.pid is None


def test_hang_is_stopped_and_named(clips: list[VideoRef]) -> None:
    """A stopped process is as hung as it gets."""
    worker = DecodeWorker()
    load(worker, clips[0])
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(DataError, match=r"1\.mp4: decoding took longer than 0\.5 s and was stopped"):
        load(worker, clips[1], timeout_s=0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert len(load(worker, clips[1]).times) == 4
    worker.close()


@pytest.mark.parametrize("kind", [signal.SIGSEGV, signal.SIGABRT])
def test_crash_in_the_middle_is_named(clips: list[VideoRef], kind: signal.Signals) -> None:
    worker = DecodeWorker()
    load(worker, clips[0])
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(0.3, lambda: (os.kill(pid, kind), os.kill(pid, signal.SIGCONT)))
    killer.start()
    with pytest.raises(DataError, match=rf"1\.mp4: the decoder died on it \({kind.name}\)"):
        load(worker, clips[1])
    assert len(load(worker, clips[1]).times) == 4
    worker.close()


def test_worker_leaves_with_its_parent(clips: list[VideoRef]) -> None:
    """Nothing is left behind by a parent that was killed."""
    code = (
        "import os, signal, sys\n"
        "from tests.data.film import POLICY\n"
        "from vtgrl.core.types import VideoRef\n"
        "from vtgrl.data.video.worker import DecodeWorker\n"
        "worker = DecodeWorker()\n"
        f"worker.load(VideoRef({clips[0].path!r}), policy=POLICY, backend='pyav', timeout_s=60)\n"
        "print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=90)
    pid = int(run.stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.1)
    pytest.fail(f"worker {pid} outlives its parent")


def _read_twenty(refs: list[VideoRef], answers: multiprocessing.Queue[int]) -> None:
    """How many of 20 reads gave the clip that was asked for, not one that another process asked for."""
    answers.put(sum(load_clip(ref, policy=POLICY, timeout_s=30).id == clip_id(ref, POLICY) for ref in refs * 2))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_do_not_share_a_reader(clips: list[VideoRef]) -> None:
    """Fault 27: the parent has a reader and a worker of its own, then two children are forked and read 20 clips each."""
    reader = decord.VideoReader(clips[0].path)
    reader[0].asnumpy()
    load_clip(clips[0], policy=POLICY)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    children = [context.Process(target=_read_twenty, args=(clips, answers)) for _ in range(2)]
    for child in children:
        child.start()
    assert [answers.get(timeout=60), answers.get(timeout=60)] == [20, 20]
    for child in children:
        child.join(timeout=30)
        assert child.exitcode == 0
    assert len(load_clip(clips[1], policy=POLICY).times) == 4


def test_messages_keep_the_users_path(clips: list[VideoRef], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^bad\.mp4: not a readable video"):
        load_clip(VideoRef("bad.mp4"), policy=POLICY)


def test_id_follows_file_cut_and_policy(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", frames=20)
    ref = VideoRef(str(path))
    ids = {
        clip_id(ref, POLICY),
        clip_id(VideoRef(str(path), end=1.0), POLICY),
        clip_id(VideoRef(str(path), start=0.0), POLICY),
        clip_id(ref, FOUR),
    }
    os.utime(path, (1, 1))
    ids.add(clip_id(ref, POLICY))
    assert len(ids) == 5
    assert clip_id(ref, POLICY) == load_clip(ref, policy=POLICY).id


# --- the loader -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_gives_the_right_clips_in_any_order(clips: list[VideoRef], workers: int) -> None:
    with ClipLoader(POLICY, workers=workers) as loader:
        loader.prefetch(clips)
        for ref in [*clips[::-1], clips[4], clips[4]]:
            assert loader.load(ref).id == clip_id(ref, POLICY)


def test_prefetch_is_bounded_and_can_be_replaced(clips: list[VideoRef]) -> None:
    """With 2 workers at most 4 clips are ahead; clips that nobody fetches do not block others."""
    with ClipLoader(POLICY, workers=2) as loader:
        loader.prefetch(clips)
        assert loader._ahead is not None
        for _ in range(100):
            if loader.decoded == 4:
                break
            time.sleep(0.1)
        assert loader._ahead.begun == clips[:4]
        assert loader.load(clips[9]).id == clip_id(clips[9], POLICY)  # not announced yet: a worker of its own
        assert loader._ahead.begun == clips[:4]
        loader.load(clips[0])
        assert loader._ahead.begun == clips[1:5]
        loader.prefetch(clips[6:8])
        assert loader._ahead.begun == clips[6:8]
        assert loader.load(clips[7]).id == clip_id(clips[7], POLICY)


def test_forgotten_loader_leaves_no_process(clips: list[VideoRef]) -> None:
    loader = ClipLoader(POLICY, workers=1)
    loader.prefetch(clips[:1])
    loader.load(clips[0])
    loader.load(clips[1])
    pids = [worker.pid for worker in (loader._front, *loader._workers)]
    assert None not in pids
    del loader
    gc.collect()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_prefetched_fault_is_raised_where_it_is_loaded(clips: list[VideoRef], tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    bad = VideoRef(str(tmp_path / "bad.mp4"))
    with ClipLoader(POLICY, workers=1) as loader:
        loader.prefetch([bad, clips[0]])
        with pytest.raises(DataError, match=r"bad\.mp4"):
            loader.load(bad)
        assert loader.load(clips[0]).id == clip_id(clips[0], POLICY)


# --- memory (fault 33) ----------------------------------------------------------------------------------------------


def resident_mb(pid: int, key: str = "VmHWM") -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> VideoRef:
    folder = tmp_path_factory.mktemp("long")
    return VideoRef(str(film(folder / "long.mp4", frames=3000, width=640, height=360, fps=30, options={"preset": "ultrafast"})))


@pytest.mark.parametrize("backend", ["decord", "pyav"])
def test_memory_is_bounded(clips: list[VideoRef], long: VideoRef, backend: str) -> None:
    """Fault 33: four frames of 3,000 at 640x360 (2 GB if all were kept), then 200 clips: the worker stays small, files are closed."""
    worker = DecodeWorker()
    ask = {"policy": FOUR, "backend": backend, "timeout_s": 60.0}
    worker.load(clips[0], **ask)
    assert worker.pid is not None
    before = resident_mb(worker.pid)
    clip = worker.load(long, **ask)
    assert clip.frames_THWC.shape == (4, 28, 56, 3)
    time.sleep(1)
    after = resident_mb(worker.pid)
    assert after - before < 80
    for k in range(200):
        worker.load(clips[k % len(clips)], **ask)
    assert resident_mb(worker.pid) - after < 20
    assert not [fd for fd in Path(f"/proc/{worker.pid}/fd").iterdir() if os.readlink(fd).endswith(".mp4")]
    worker.close()
