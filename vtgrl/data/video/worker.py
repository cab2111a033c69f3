"""Decoding in a process of its own, which can be stopped: decoders hang, crash and leak on bad files.

The process is started fresh (never forked: a decoder inherited through fork deadlocks), serves one request after the
other over a pipe, and is replaced after it was killed or died. Run as `python -m vtgrl.data.video.worker FD`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import vtgrl
from vtgrl.core.errors import DataError, RunError
from vtgrl.core.types import VideoRef
from vtgrl.data.video.types import Clip, FramePolicy

START_LIMIT_S = 180.0
"""Seconds for a worker to come up (importing the decoders on a loaded machine)."""
CLIPS_A_WORKER = 2000
"""After so many clips a worker is replaced: whatever a decoder leaked goes with it."""
PARENT_CHECK_S = 5.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""For numpy's matrix products (`resize`): other clips are decoded meanwhile, and waiting threads spin."""

# --- the parent's side -------------------------------------------------------------------------------------------


class DecodeWorker:
    """One decoding process. Started at the first request; safe to use from several threads, one at a time.

    Example: DecodeWorker().load(ref, policy=policy, backend="pyav", timeout_s=60)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._served = 0
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        """Process id of the running worker, None when there is none."""
        return None if self._process is None else self._process.pid

    def load(self, ref: VideoRef, *, policy: FramePolicy, backend: str, timeout_s: float) -> Clip:
        """Decode in the worker.

        Raises:
            DataError: what is wrong with the file; also when it took longer than `timeout_s` or crashed the decoder.
        """
        absolute = replace(ref, path=str(Path(ref.path).absolute()))
        with self._lock:
            clip, error = self._ask((absolute, policy, backend), path=ref.path, timeout_s=timeout_s)
        if error is not None:
            raise DataError(error.replace(absolute.path, ref.path))
        assert clip is not None
        return clip

    def close(self) -> None:
        """Stop the worker. The next request starts a new one. A forked copy of this object does nothing."""
        process, pipe = self._process, self._pipe
        if process is None or pipe is None or self._owner != os.getpid():
            return
        self._process = self._pipe = None
        atexit.unregister(self.close)
        pipe.close()
        process.kill()
        process.wait()

    def _ask(self, request: Any, *, path: str, timeout_s: float) -> tuple[Clip | None, str | None]:
        process, pipe = self._running()
        deadline = _Deadline(process, timeout_s)
        try:
            pipe.send(request)
            answer = pipe.recv()
        except (EOFError, OSError):
            if self._process is not process:
                return None, f"{path}: not decoded, its reader was closed meanwhile"
            return None, self._bury(path, timed_out=deadline.passed, timeout_s=timeout_s)
        finally:
            deadline.cancel()
        self._served += 1
        return answer

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The worker, started or replaced when needed."""
        if self._process is not None and (self._process.poll() is not None or self._served >= CLIPS_A_WORKER):
            self.close()
        if self._process is None or self._pipe is None:
            self._process, self._pipe = _start()
            self._served = 0
            atexit.register(self.close)
        return self._process, self._pipe

    def _bury(self, path: str, *, timed_out: bool, timeout_s: float) -> str:
        """Clean up after a worker that is gone; the message for the user."""
        assert self._process is not None
        self._process.kill()
        status = self._process.wait()
        self.close()
        if timed_out:
            return f"{path}: decoding took longer than {timeout_s:g} s and was stopped; the file is damaged, or raise video.timeout_s"
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"{path}: the decoder died on it ({how}); the file is damaged, get it again or leave the row out"


class _Deadline:
    """Kills the worker when time is up, so that whoever waits on its pipe wakes up."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self.passed = False
        self._process = process
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _fire(self) -> None:
        self.passed = True
        self._process.kill()


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    """A fresh interpreter that has imported the decoders and says so."""
    ours, theirs = Pipe()
    package_root = str(Path(vtgrl.__file__).parents[1])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "vtgrl.data.video.worker", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # Ctrl-C is the parent's to handle
    )
    theirs.close()
    try:
        if ours.poll(START_LIMIT_S) and ours.recv() == "ready":
            return process, ours
    except EOFError:
        pass
    process.kill()
    raise RunError(f"the decoding process does not start (exit status {process.wait()}); its error is on stderr")


# --- the worker's side -------------------------------------------------------------------------------------------


def serve(pipe: Connection) -> None:
    """Answer requests until the parent hangs up."""
    from vtgrl.data.video.decode import decode_clip

    pipe.send("ready")
    while True:
        try:
            ref, policy, backend = pipe.recv()
        except EOFError:
            return
        answer: tuple[Clip | None, str | None]
        try:
            answer = (decode_clip(ref, policy=policy, backend=backend), None)
        except DataError as error:
            answer = (None, str(error))
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


def _leave_with(parent: int) -> None:
    """End when the parent is gone, even in the middle of a decode that hangs."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(0)


def main() -> None:
    """Entry point of the process."""
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with contextlib.closing(Connection(int(sys.argv[1]))) as pipe:
        serve(pipe)


if __name__ == "__main__":
    main()
