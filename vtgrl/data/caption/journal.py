"""What is done, one line a clip, appended as it comes: a run that was killed goes on where it was.

A line: {"clip": key, "run": mark, "video": {"path", "start", "end"}, "captions": [{"start", "end", "text"}], "dropped": {reason: n},
"error": null | {"kind", "reason"}, "usage": {...}}. Lines of another model or prompt stay, unused. A clip that failed is asked again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import append_line, cannot_write, to_line
from vtgrl.core.log import logger
from vtgrl.core.types import Caption
from vtgrl.data.caption.types import Job, Outcome, Usage


def journal_path(out: Path) -> Path:
    """Beside the output."""
    return out.with_name(f"{out.stem}.journal.jsonl")


class Journal:
    """The journal of one output, for one captioner.

    done: key -> outcome with captions. spent: what all lines of this captioner cost, failed ones too.
    """

    def __init__(self, path: Path, *, run: str) -> None:
        """Reads what is there; creates the file, so that one that cannot be written is known before anything is paid for.

        Raises:
            RunError: not writable.
            DataError: it is not a journal.
            ConfigError: another run writes it now.
        """
        self.path, self._run = path, run
        self.done: dict[str, Outcome] = {}
        self.spent = Usage()
        self._lock = _locked(path)
        try:
            for key, outcome in _lines(path, run=run):
                self.spent += outcome.usage
                if outcome.captions:
                    self.done[key] = outcome
        except DataError:
            self.close()
            raise
        if _cut_torn_line(path):
            logger.warning("%s: the last line was cut off; that clip is asked about again", path)

    @staticmethod
    def peek(path: Path, *, run: str) -> set[str]:
        """Keys of the clips that are done; writes and locks nothing. No file: none."""
        return {key for key, outcome in _lines(path, run=run) if outcome.captions} if path.exists() else set()

    def add(self, job: Job, outcome: Outcome) -> None:
        """Append.

        Raises:
            RunError: disk full.
        """
        self.spent += outcome.usage
        line = {
            "clip": job.key,
            "run": self._run,
            "video": {"path": job.ref.path, "start": job.ref.start, "end": job.ref.end},
            "captions": [asdict(caption) for caption in outcome.captions],
            "dropped": dict(outcome.dropped),
            "error": None if outcome.kind is None else {"kind": outcome.kind, "reason": outcome.reason},
            "usage": asdict(outcome.usage),
        }
        append_line(self.path, to_line(line))

    def close(self) -> None:
        """Let another run write."""
        os.close(self._lock)


def _lines(path: Path, *, run: str) -> Iterator[tuple[str, Outcome]]:
    """(key, outcome) of every whole line of this run."""
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            found = (str(line["clip"]), _outcome(line)) if line["run"] == run else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}:{number}: not a line of a caption journal; remove it, or choose another --out") from error
        if found:
            yield found


def _outcome(line: Mapping[str, Any]) -> Outcome:
    error = line["error"] or {"kind": None, "reason": ""}
    captions = tuple(Caption(**caption) for caption in line["captions"])
    return Outcome(captions, line["dropped"], error["kind"], error["reason"], Usage(**line["usage"]))


def _locked(path: Path) -> int:
    """A descriptor that holds the file's lock until it is closed, or this process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise ConfigError(f"{path}: another run is writing it; wait for it, or choose another --out") from error
    except OSError as error:
        logger.warning("%s: cannot be locked (%s); do not start a second run with this --out", path, error.strerror)
    return fd


def _cut_torn_line(path: Path) -> bool:
    """Take off what stands behind the last end of line: the machine went down while it was written."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return whole < len(data)
