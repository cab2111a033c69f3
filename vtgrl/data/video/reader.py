"""Clips for everyone else: decoded in killable processes, one at a time or ahead of need.

clip = load_clip(ref, policy=policy, backend="decord", timeout_s=60)

with ClipLoader(policy, backend="decord", timeout_s=60, workers=4) as loader:
    loader.prefetch(refs)            # a hint: what `load` will be asked for next, in order
    clips = [loader.load(ref) for ref in refs]
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType

from vtgrl.core.log import logger
from vtgrl.core.types import VideoRef
from vtgrl.data.video.backends import VideoReader, check_backend
from vtgrl.data.video.decode import clip_id
from vtgrl.data.video.types import Clip, FramePolicy
from vtgrl.data.video.worker import DecodeWorker

__all__ = ["ClipLoader", "VideoReader", "clip_id", "load_clip"]

_workers: dict[int, DecodeWorker] = {}
"""Process id -> its worker: one inherited through fork belongs to the parent and is not touched."""
_said: set[str] = set()


def load_clip(ref: VideoRef, *, policy: FramePolicy, backend: str = "decord", timeout_s: float = 60.0) -> Clip:
    """Decode one clip in this process's decoding worker.

    Args:
        ref: which part of which file.
        policy: which frames, how large (`resolve_policy`).
        backend: "decord" or "pyav"; both give the same frames and times.
        timeout_s: a decode that takes longer is killed.

    Raises:
        DataError: names the file and what is wrong with it.
        EnvironmentMissing: the backend is not installed.
    """
    check_backend(backend)
    clip_id(ref, policy)  # a missing or empty file needs no worker
    return _noted(ref, _own_worker().load(ref, policy=policy, backend=backend, timeout_s=timeout_s))


def _own_worker() -> DecodeWorker:
    pid = os.getpid()
    if pid not in _workers:
        _workers[pid] = DecodeWorker()
    return _workers[pid]


def _noted(ref: VideoRef, clip: Clip) -> Clip:
    """The clip, after its notes have been logged (once a file)."""
    for note in clip.notes:
        line = f"{ref.path}: {note}"
        if line not in _said:
            _said.add(line)
            logger.warning("%s", line)
    return clip


class ClipLoader:
    """Loads clips, up to `workers` of them ahead.

    At most 2 x workers clips are decoded or being decoded before `load` asks for them. `load` never waits for a full
    buffer: a clip that was not announced is decoded by a worker of its own.
    """

    def __init__(self, policy: FramePolicy, *, backend: str = "decord", timeout_s: float = 60.0, workers: int = 0) -> None:
        check_backend(backend)
        self._policy, self._backend, self._timeout_s, self._count = policy, backend, timeout_s, workers
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._front = DecodeWorker()
        self._idle: queue.SimpleQueue[DecodeWorker] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(self._count, "vtgrl-decode") if self._count else None
        self._ahead = [DecodeWorker() for _ in range(self._count)]
        for worker in self._ahead:
            self._idle.put(worker)
        self._stop = weakref.finalize(self, _close_all, (self._front, *self._ahead))  # also when nobody calls `close`
        self._waiting: list[VideoRef] = []
        self._running: OrderedDict[VideoRef, Future[Clip]] = OrderedDict()

    def load(self, ref: VideoRef) -> Clip:
        """The clip; see `load_clip` for errors. A prefetched one is handed out once."""
        if self._pid != os.getpid():
            self._reset()
        clip_id(ref, self._policy)
        with self._lock:
            future = self._running.get(ref)
            if future is None and ref in self._waiting:
                self._waiting.remove(ref)
        if future is None:
            return _noted(ref, self._decode(self._front, ref))
        try:
            return _noted(ref, future.result())
        except CancelledError:  # another thread has announced other clips meanwhile
            return _noted(ref, self._decode(self._front, ref))
        finally:
            with self._lock:
                self._running.pop(ref, None)
                self._advance()

    def prefetch(self, refs: Iterable[VideoRef]) -> None:
        """Say what will be asked for next, in order. Replaces what was said before; does nothing without workers."""
        if self._pid != os.getpid():
            self._reset()
        if self._pool is None:
            return
        with self._lock:
            self._waiting = list(dict.fromkeys(refs))
            for ref in [r for r in self._running if r not in self._waiting]:
                self._running.pop(ref).cancel()
            self._waiting = [r for r in self._waiting if r not in self._running]
            self._advance()

    def close(self) -> None:
        """Stop all workers."""
        with self._lock:
            self._waiting = []
            self._running.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._stop()

    def __enter__(self) -> ClipLoader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _advance(self) -> None:
        """Start decoding ahead as far as the bound allows. The lock is held."""
        assert self._pool is not None
        while self._waiting and len(self._running) < 2 * self._count:
            ref = self._waiting.pop(0)
            self._running[ref] = self._pool.submit(self._decode_ahead, ref)

    def _decode_ahead(self, ref: VideoRef) -> Clip:
        worker = self._idle.get()
        try:
            return self._decode(worker, ref)
        finally:
            self._idle.put(worker)

    def _decode(self, worker: DecodeWorker, ref: VideoRef) -> Clip:
        return worker.load(ref, policy=self._policy, backend=self._backend, timeout_s=self._timeout_s)


def _close_all(workers: tuple[DecodeWorker, ...]) -> None:
    for worker in workers:
        worker.close()
