"""The folder of one run.

resolved.yaml   every key of the recipe          env.json        versions, commit, command, machine
metrics.jsonl   one row a step                   samples.jsonl   groups of answers with their rewards
ckpt/           checkpoints                      select/         rows of each epoch, when data.filter chooses them
"""

from __future__ import annotations

import errno
import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vtgrl.core.errors import ConfigError
from vtgrl.core.host import environment
from vtgrl.core.jsonl import append_line, atomic_write, cannot_write, to_line
from vtgrl.core.log import logger

_LOCKS: dict[Path, IO[str]] = {}
"""Lock files of the folders that this process runs in; open as long as it lives."""


@dataclass(frozen=True)
class RunFolder:
    """Names and writes the files of a run. Only one rank writes."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, *, resolved_yaml: str, resume: bool) -> RunFolder:
        """Make the folder and write resolved.yaml and env.json.

        Raises:
            ConfigError: the folder holds something and `resume` is False, or another process runs in it.
            RunError: not writable.
        """
        folder = cls(Path(path))
        if folder.path.exists() and not folder.path.is_dir():
            raise ConfigError(f"{path} is a file; give --run-dir a folder")
        if not resume and folder._used():
            raise ConfigError(f"{path} is not empty; go on with --resume auto, or choose another --run-dir")
        if resume:
            folder._warn_of_changes(resolved_yaml)
        try:
            folder.ckpt_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(folder.path, error) from error
        folder._lock()
        folder.write_text("resolved.yaml", resolved_yaml)
        folder.write_json("env.json", environment())
        return folder

    @property
    def ckpt_dir(self) -> Path:
        """Where checkpoints go."""
        return self.path / "ckpt"

    def _used(self) -> bool:
        """True when there is something to lose: more than a start that failed before its first step leaves."""
        if not self.path.is_dir():
            return False
        names = {p.name for p in self.path.iterdir()}
        started = {"resolved.yaml", "env.json"} <= names
        left = names - {".lock", "resolved.yaml", "env.json", "ckpt"} if started else names
        return bool(left) or (started and any(self.ckpt_dir.glob("*")))

    def _lock(self) -> None:
        """Keep other runs out while this process lives. A record lock: neither a kill nor a child that survives leaves it behind."""
        path = (self.path / ".lock").resolve()
        try:
            file = _LOCKS[path] = _LOCKS.get(path) or open(path, "a", encoding="utf-8")  # noqa: SIM115 (held until the process ends)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(f"{self.path} is in use by another run; wait for its end, or choose another --run-dir") from error
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
                raise cannot_write(path, error) from error

    def _warn_of_changes(self, resolved_yaml: str) -> None:
        old = self.path / "resolved.yaml"
        if old.is_file() and old.read_text(encoding="utf-8") != resolved_yaml:
            logger.warning("%s: resumed with another recipe; the old one is now resolved.before.yaml", self.path)
            self.write_text("resolved.before.yaml", old.read_text(encoding="utf-8"))

    def write_text(self, name: str, text: str) -> Path:
        """Write a file atomically."""
        atomic_write(self.path / name, text)
        return self.path / name

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file atomically."""
        return self.write_text(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n")

    def append_jsonl(self, name: str, row: dict[str, Any]) -> None:
        """Append one row, whole or not at all; numbers that are not finite become null."""
        append_line(self.path / name, to_line(row))

    def drop_rows_from(self, name: str, *, step: int) -> None:
        """Forget the rows of `step` and later, and a last line that a crash cut: they will be written again.

        So a resumed run has one row a step, and the later one counts.
        """
        path = self.path / name
        if not path.is_file():
            return
        *whole, _cut = path.read_text(encoding="utf-8").split("\n")
        kept = [line for line in whole if json.loads(line)["step"] < step]
        atomic_write(path, "".join(f"{line}\n" for line in kept))
