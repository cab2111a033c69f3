"""Clips for everyone else: decoded in killable processes, one at a time or ahead of need.

clip = load_clip(ref, policy=policy, timeout_s=60)

with ClipLoader(policy, timeout_s=60, workers=4) as loader:
    loader.prefetch(refs)            # a hint: what `load` will be asked for next, in order
    clips = [loader.load(ref) for ref in refs]
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from vtgrl.core.errors import DataError
from vtgrl.core.log import logger
from vtgrl.core.types import VideoRef
from vtgrl.data.video.ahead import Ahead, Bound
from vtgrl.data.video.backends import VideoReader, check_backend
from vtgrl.data.video.cache import FrameCache
from vtgrl.data.video.decode import clip_id
from vtgrl.data.video.plan import clip_bytes
from vtgrl.data.video.types import Clip, FramePolicy
from vtgrl.data.video.worker import DecodeWorker

__all__ = ["ClipLoader", "Loader", "VideoReader", "clip_id", "load_clip"]

T = TypeVar("T")
BACKEND = "pyav"
"""As `video.backend`: half to nine tenths of decord's CPU time."""
AHEAD_BYTES = 2 * 2**30

_workers: dict[int, DecodeWorker] = {}
"""Process id -> its worker: one inherited through fork belongs to the parent and is not touched."""
_said: set[str] = set()


def load_clip(ref: VideoRef, *, policy: FramePolicy, backend: str = BACKEND, timeout_s: float = 60.0) -> Clip:
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


class Loader(Generic[T]):
    """Loads clips and makes something of them, up to `workers` of them ahead, through the frame cache when there is one.

    `finish` makes of a clip what `load` gives (`growth` times as many bytes as the clip's frames); for clips that are
    announced it runs in a thread of this process, one at a time. At most 2 x workers results and `ahead_bytes` wait for `load`.
    `load` never waits for a full buffer: a clip that was not announced is decoded by a worker of its own.
    `decoded`, `cached`: clips that a decoder made and clips that the cache gave, so far.
    """

    def __init__(
        self,
        policy: FramePolicy,
        *,
        finish: Callable[[Clip], T],
        growth: int = 1,
        backend: str = BACKEND,
        timeout_s: float = 60.0,
        workers: int = 0,
        cache: FrameCache | None = None,
        ahead_bytes: int = AHEAD_BYTES,
    ) -> None:
        check_backend(backend)
        self._policy, self._backend, self._timeout_s, self._count = policy, backend, timeout_s, workers
        self._finish, self._growth, self._cache = finish, growth, cache
        self._bound = Bound(2 * workers, ahead_bytes, growth * clip_bytes(policy))
        self.decoded = self.cached = 0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._counting, self._finishing = threading.Lock(), threading.Lock()
        self._front = DecodeWorker()
        self._workers = [DecodeWorker() for _ in range(self._count)]
        self._idle: queue.SimpleQueue[DecodeWorker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._ahead = Ahead(self._make_ahead, threads=self._count, bound=self._bound) if self._count else None
        self._stop = weakref.finalize(self, _close_all, (self._front, *self._workers))  # also when nobody calls `close`

    def load(self, ref: VideoRef) -> T:
        """The clip, finished; see `load_clip` for errors. A prefetched one is handed out once."""
        if self._pid != os.getpid():
            self._reset()
        clip_id(ref, self._policy)
        found = self._ahead.take(ref) if self._ahead is not None else None
        return self._make(ref, self._front)[0] if found is None else found

    def prefetch(self, refs: Iterable[VideoRef]) -> None:
        """Say what will be asked for next, in order. Replaces what was said before; does nothing without workers."""
        if self._pid != os.getpid():
            self._reset()
        if self._ahead is not None:
            self._ahead.announce(refs)

    def close(self) -> None:
        """Stop all workers."""
        if self._ahead is not None:
            self._ahead.close()
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _make_ahead(self, ref: VideoRef) -> tuple[T, int]:
        worker = self._idle.get()
        try:
            return self._make(ref, worker)
        finally:
            self._idle.put(worker)

    def _make(self, ref: VideoRef, worker: DecodeWorker) -> tuple[T, int]:
        """The finished clip and its bytes."""
        clip = _noted(ref, self._fetch(ref, worker))
        try:
            with self._finishing:
                return self._finish(clip), self._growth * clip.frames_THWC.nbytes
        except DataError as error:
            raise DataError(f"{ref.path}: {error}") from error

    def _fetch(self, ref: VideoRef, worker: DecodeWorker) -> Clip:
        """From the cache, or decoded and put there."""
        clip = self._cache.get(clip_id(ref, self._policy)) if self._cache is not None else None
        if clip is not None:
            with self._counting:
                self.cached += 1
            return clip
        clip = worker.load(ref, policy=self._policy, backend=self._backend, timeout_s=self._timeout_s)
        with self._counting:
            self.decoded += 1
        if self._cache is not None:
            self._cache.put(clip)
        return clip


class ClipLoader(Loader[Clip]):
    """Loads clips as they are. Options: see Loader."""

    def __init__(self, policy: FramePolicy, **options: Any) -> None:
        super().__init__(policy, finish=lambda clip: clip, **options)


def _close_all(workers: tuple[DecodeWorker, ...]) -> None:
    for worker in workers:
        worker.close()
