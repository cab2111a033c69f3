"""Decoded clips in a folder, shared by the ranks and runs of a machine: each is decoded once and read ever after.

An entry is named by `clip_id` (file, size, time of change, cut, frame policy), so a changed file or plan is another entry. It
is read into memory whole rather than mapped: at 14 MB a clip that costs 1 ms more, and an entry that leaves, a disk that
fails or a file system that goes away meanwhile cannot kill the process.

cache = open_cache("/scratch/frames", gigabytes=50)
cache.put(clip)
same = cache.get(clip.id)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.log import logger
from vtgrl.data.video import clip_file
from vtgrl.data.video.types import Clip

ENDING = ".v1.clip"
"""Of an entry's name. Count up when decoding or resizing changes: what was written before then ages out."""
GIGABYTE = 2**30
LOW_WATER = 0.9
"""Share of the limit that is left when room is made."""
LOCK_WAIT_S = 10.0


def open_cache(folder: Path | str, *, gigabytes: float) -> FrameCache:
    """The cache in `folder`, which is made when it is not there.

    Raises:
        ConfigError: it cannot be written, or its disk has no room for `gigabytes`.
    """
    path = Path(folder).expanduser().absolute()
    cache = FrameCache(path, limit=int(gigabytes * GIGABYTE))
    try:
        path.mkdir(parents=True, exist_ok=True)
        room = cache.measure() + shutil.disk_usage(path).free
    except OSError as error:
        raise ConfigError(
            f"video.cache_dir={folder}: {error.strerror}; name a folder on a disk of this machine that you can write"
        ) from error
    if room < cache.limit:
        raise ConfigError(f"video.cache_gb={gigabytes:g}: the disk of {path} has room for {room / GIGABYTE:.1f}; lower it or free space")
    return cache


class FrameCache:
    """Clips as files, at most `limit` bytes of them; those that nobody has asked for longest leave.

    Safe with any number of threads and processes: an entry appears whole (written aside, then renamed), and one that is
    being read stays readable when it leaves. `damaged`: how often this process found one that was not what had been written.
    """

    def __init__(self, folder: Path, *, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.damaged = 0
        self._said: set[str] = set()

    def get(self, identity: str) -> Clip | None:
        """The clip, None when it is not here. A damaged entry is counted, said and removed."""
        path = self._path(identity)
        try:
            clip = clip_file.read(path, identity=identity)
        except FileNotFoundError:
            return None
        except (clip_file.Damaged, OSError) as error:
            self.damaged += 1
            logger.warning("%s is damaged (%s): the clip is decoded again; %d such so far", path, error, self.damaged)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # it has just left, or belongs to another user
            os.utime(path)
        return clip

    def put(self, clip: Clip) -> None:
        """Keep a clip. One larger than the whole cache is not kept, and said.

        Raises:
            RunError: the disk is full, or the folder cannot be written any more.
        """
        parts = clip_file.encode(clip)
        size = sum(map(len, parts))
        if size > self.limit:
            self._say("large", f"a clip of {size / GIGABYTE:.2f} GB has no room; raise video.cache_gb")
            return
        path = self._path(clip.id)
        try:
            with self._alone() as ledger:
                if ledger is not None and not path.exists():
                    ledger.write(self._make_room(ledger.read(), size) + size)
                    self._write(path, parts)
        except OSError as error:
            raise RunError(
                f"frame cache {self.folder}: {error.strerror}; free space, lower video.cache_gb, or leave video.cache_dir empty"
            ) from error

    def measure(self) -> int:
        """Count the bytes of all entries anew."""
        with self._alone() as ledger:
            total = sum(entry.size for entry in self._entries())
            if ledger is not None:
                ledger.write(total)
        return total

    def _path(self, identity: str) -> Path:
        return self.folder / f"{identity}{ENDING}"

    def _make_room(self, total: int, size: int) -> int:
        """Remove entries until `size` more bytes fit -> bytes that are left. Alone."""
        if total + size <= self.limit:
            return total
        entries = sorted(self._entries(), key=lambda e: e.used_ns)
        total = sum(entry.size for entry in entries)  # others may have removed some since
        if total + size <= self.limit:
            return total
        self._say("full", f"full ({self.limit / GIGABYTE:g} GB): clips unused for longest leave; raise video.cache_gb to keep all")
        for entry in entries:
            if total + size <= max(self.limit * LOW_WATER, size):
                break
            Path(entry.path).unlink(missing_ok=True)
            total -= entry.size
        return total

    def _entries(self) -> list[_Entry]:
        found = []
        with os.scandir(self.folder) as files:
            for file in files:
                if file.name.endswith(".clip"):
                    with contextlib.suppress(FileNotFoundError):
                        status = file.stat()
                        found.append(_Entry(file.path, status.st_size, status.st_mtime_ns))
        return found

    def _write(self, path: Path, parts: tuple[bytes, memoryview]) -> None:
        """Aside, then in place. Alone: one name is enough, and what a killed writer left is written over."""
        aside = self.folder / "writing"
        try:
            with aside.open("wb") as file:
                file.writelines(parts)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def _alone(self) -> Iterator[_Ledger | None]:
        """The only one of all threads and processes that writes here; None when another has not let go for long."""
        fd = os.open(self.folder / "ledger", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield _Ledger(fd) if self._lock(fd) else None
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> bool:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    logger.warning("frame cache %s: another process has held it for %g s; a clip is not kept", self.folder, LOCK_WAIT_S)
                    return False
                time.sleep(0.01)
            else:
                return True

    def _say(self, key: str, text: str) -> None:
        """Warn once."""
        if key not in self._said:
            self._said.add(key)
            logger.warning("frame cache %s: %s", self.folder, text)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    size: int
    used_ns: int


class _Ledger:
    """How many bytes there are, in a file: counting the entries at each write would be slow."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> int:
        text = os.pread(self._fd, 32, 0)
        return int(text) if text.strip().isdigit() else 0

    def write(self, total: int) -> None:
        os.pwrite(self._fd, b"%-31d\n" % total, 0)
