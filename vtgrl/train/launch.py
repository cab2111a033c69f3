"""`--nproc N`: N copies of a command as the ranks of one group on this machine. No torch import."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from vtgrl.core.host import cpu_count
from vtgrl.core.log import logger

GRACE_S = 5.0
"""Seconds between asking the other ranks to end and ending them, once one has failed."""


def launch(command: Sequence[str], *, nproc: int) -> int:
    """Run `command` as `nproc` ranks and return the exit code: 0, or that of the rank that failed first.

    One rank's failure ends the others within seconds. Ctrl-C and SIGTERM reach every rank once; a second ends them at once.
    """
    ranks = Ranks(command, nproc=nproc)
    with ranks.forwarding():
        try:
            return ranks.wait()
        finally:
            ranks.signal(signal.SIGKILL)


class Ranks:
    """The processes of one group."""

    def __init__(self, command: Sequence[str], *, nproc: int) -> None:
        self.signals = 0
        port = free_port()
        self.procs = [_start(command, rank=rank, nproc=nproc, port=port) for rank in range(nproc)]

    def signal(self, signum: int) -> None:
        """Send a signal to all live ranks; SIGKILL also to the processes that they started."""
        for proc in self.procs:
            if proc.poll() is None and signum == signal.SIGKILL:
                os.killpg(proc.pid, signum)
            elif proc.poll() is None:
                proc.send_signal(signum)

    def _forward(self, signum: int, frame: FrameType | None) -> None:
        self.signals += 1
        self.signal(signum if self.signals == 1 else signal.SIGKILL)

    @contextmanager
    def forwarding(self) -> Iterator[None]:
        """While active, signals to this process go to the ranks, which write a checkpoint and end."""
        old = {s: signal.signal(s, self._forward) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in old.items():
                signal.signal(signum, handler)

    def wait(self) -> int:
        """Wait for all ranks, or for the first failure."""
        while None in (codes := [proc.poll() for proc in self.procs]):
            if any(code and not (code == 130 and self.signals) for code in codes):
                self._end_others()
                break
            time.sleep(0.05)
        return self._exit_code(codes)

    def _end_others(self) -> None:
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(proc.poll() is None for proc in self.procs):
            time.sleep(0.05)
        self.signal(signal.SIGKILL)

    def _exit_code(self, codes: Sequence[int | None]) -> int:
        for rank, code in enumerate(codes):
            if code is not None and code < 0 and not self.signals:
                logger.error("rank %d was ended by %s%s", rank, signal.Signals(-code).name, " (out of memory?)" if code == -9 else "")
        if self.signals:
            return 130
        # Several may have failed between two looks: a usage (2) or environment (3) error is the cause, 1 its echo.
        return max((code if code > 0 else 1 for code in codes if code), default=0)


def _start(command: Sequence[str], *, rank: int, nproc: int, port: int) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    env.setdefault("OMP_NUM_THREADS", str(max(1, cpu_count() // nproc)))
    # An own process group: the terminal sends Ctrl-C to us alone, and we pass it on once.
    return subprocess.Popen(
        list(command),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=None if rank == 0 else sys.stderr.fileno(),
        process_group=0,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
