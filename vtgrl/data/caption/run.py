"""Rows in, captioned rows out: `vtgrl data caption`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from vtgrl.core.errors import ConfigError, Interrupted, RunError
from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.log import logger
from vtgrl.core.registry import Component
from vtgrl.core.schema import VideoConfig
from vtgrl.data.caption.clips import Todo, find_jobs, frame_policy, with_captions
from vtgrl.data.caption.cost import Prices, estimate
from vtgrl.data.caption.journal import Journal, journal_path
from vtgrl.data.caption.types import Captioner, Job, Outcome
from vtgrl.data.load import load_samples
from vtgrl.data.samples import LoadReport
from vtgrl.data.write import write_samples

EVERY_S = 10.0
"""Between two lines of progress."""


@dataclass(frozen=True)
class CaptionOptions:
    """Which rows, where to, and what of failures.

    videos: folder that relative paths start from; None: that of `path`. video: frames that are shown. failed: rows whose clip got no
    captions are kept as they are, or dropped. again: rows that have captions get new ones. max_cost: stop asking once so much has been
    spent (0: no limit; needs prices).
    """

    path: Path
    source: Component
    out: Path
    videos: Path | None
    video: VideoConfig
    failed: Literal["keep", "drop"] = "keep"
    again: bool = False
    limit: int = 0
    prices: Prices | None = None
    max_cost: float = 0.0


def estimate_captions(options: CaptionOptions, *, mark: str, max_tokens: int) -> dict[str, Any]:
    """What a run would ask and cost. Nothing is asked, and nothing written.

    Raises:
        ConfigError, DataError: as `caption_rows`.
    """
    read, todo = _read(options)
    done = Journal.peek(journal_path(options.out), run=mark)
    left = [job for job in todo.jobs if job.key not in done]
    guess = estimate(left, read.samples, options.video, max_tokens=max_tokens, prices=options.prices)
    return {**_rows(read, todo), "done_before": len(todo.jobs) - len(left), **guess}


def caption_rows(options: CaptionOptions, *, mark: str, make: Callable[[], Captioner]) -> dict[str, Any]:
    """Caption the clips of all rows that need it, and write the rows in their order.

    Args:
        mark: digest of what makes an answer besides the clip (model, prompt); answers in the journal with another mark are not used.
        make: opens the captioner; only called when there is something to ask.

    Returns:
        The summary: rows, clips, failures by kind, events, requests, tokens, cost.

    Raises:
        ConfigError: the output is the input, or not from an earlier run; no request can succeed.
        DataError: the rows cannot be read.
        RunError: not one clip was captioned, the budget is spent, the server has gone, or the disk is full.
        Interrupted: by the user; the journal has all that was done.
    """
    read, todo = _read(options)
    journal = Journal(journal_path(options.out), run=mark)
    try:
        ledger = _Ledger(journal, todo, options)
        ledger.run(make)
        return _write(options, read, todo, ledger)
    finally:
        journal.close()


def _read(options: CaptionOptions) -> tuple[LoadReport, Todo]:
    _check(options)
    read = load_samples(options.source, path=options.path, videos=options.videos or "", limit=options.limit)
    return read, find_jobs(read.samples, frame_policy(options.video), again=options.again)


def _check(options: CaptionOptions) -> None:
    out = options.out
    if out.resolve() == options.path.resolve():
        raise ConfigError(f"--out {out} is the file that is read: choose another one")
    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder: name a file, such as {out / 'captioned.jsonl'}")
    if out.exists() and not journal_path(out).exists():
        raise ConfigError(f"--out {out} exists and no journal of an earlier run lies beside it: choose another name")
    if options.max_cost and options.prices is None:
        raise ConfigError("--max-cost needs --price-in and --price-out: what a million tokens cost")


class _Ledger:
    """Keeps what came of every clip: in memory, in the journal, and on stderr."""

    def __init__(self, journal: Journal, todo: Todo, options: CaptionOptions) -> None:
        self.journal, self.todo, self.options = journal, todo, options
        self.outcomes: dict[Job, Outcome] = {job: journal.done[job.key] for job in todo.jobs if job.key in journal.done}
        self.resumed = len(self.outcomes)
        self.retried: Counter[str] = Counter()
        self._said = time.monotonic()
        self._over = False

    @property
    def cost(self) -> float | None:
        """Of all requests in the journal; None without prices."""
        return None if self.options.prices is None else self.options.prices.of(self.journal.spent)

    def run(self, make: Callable[[], Captioner]) -> None:
        """Ask about every clip that is not done."""
        left = [job for job in self.todo.jobs if job not in self.outcomes]
        logger.info("%d clips to caption, %d are done already", len(left), self.resumed)
        if not left:
            return
        self._check_budget()
        try:
            captioner = make()
            self.retried = captioner.retried
            captioner.ask(left, self.record)
        except KeyboardInterrupt as error:
            raise Interrupted(f"interrupted; {self._state()}") from error
        except (ConfigError, RunError):
            logger.info("%s", self._state())
            raise

    def record(self, job: Job, outcome: Outcome) -> None:
        """Take what came of a clip.

        Raises:
            RunError: the budget is spent, or the disk is full.
        """
        self.journal.add(job, outcome)
        self.outcomes[job] = outcome
        if outcome.kind is not None:
            logger.warning("%s: no captions: %s", job.ref.path, outcome.reason.removeprefix(f"{job.ref.path}: "))
        if len(self.outcomes) == len(self.todo.jobs) or time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            logger.info("%s", self._progress())
        self._check_budget()

    def _check_budget(self) -> None:
        """Stop once, when the limit is reached; what is in flight then is still recorded."""
        limit, cost = self.options.max_cost, self.cost
        if not limit or cost is None or self._over:
            return
        self._over = cost >= limit or self.journal.spent.unmetered > 0
        if cost >= limit:
            raise RunError(f"{cost:.4f} of --max-cost {limit:g} is spent; {self._state()}")
        if self._over:
            raise RunError(f"the server tells no token counts, so --max-cost cannot be kept; {self._state()}")

    def _progress(self) -> str:
        failed = sum(outcome.kind is not None for outcome in self.outcomes.values())
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        return f"{len(self.outcomes)} of {len(self.todo.jobs)} clips, {failed} failed{cost}"

    def _state(self) -> str:
        done = sum(outcome.kind is None for outcome in self.outcomes.values())
        return f"{done} of {len(self.todo.jobs)} clips are in {self.journal.path}; the same command goes on from there"


def _write(options: CaptionOptions, read: LoadReport, todo: Todo, ledger: _Ledger) -> dict[str, Any]:
    failures = options.out.with_name(f"{options.out.stem}.failures.jsonl")
    failed = {job: outcome for job, outcome in ledger.outcomes.items() if outcome.kind is not None}
    if failed:
        atomic_write(failures, "".join(_failure(job, outcome) for job, outcome in failed.items()))
    else:
        failures.unlink(missing_ok=True)
    if todo.jobs and len(failed) == len(todo.jobs):
        first = next(iter(failed.values())).reason
        raise RunError(f"not one of {len(failed)} clips got captions, first: {first}; all reasons are in {failures}")
    captions = {job.ref: outcome.captions for job, outcome in ledger.outcomes.items()}
    rows = with_captions(read.samples, captions, again=options.again, drop=options.failed == "drop")
    videos = options.videos or options.path.parent
    write_samples(options.out, rows, videos=videos)
    return {
        **_rows(read, todo),
        "rows_written": len(rows),
        "rows_with_captions": sum(bool(row.captions) for row in rows),
        "rows_dropped": len(read.samples) - len(rows),
        **_counts(ledger),
        "out": str(options.out),
        "failures_file": str(failures) if failed else None,
        "journal": str(ledger.journal.path),
        "train_with": f"data.source=jsonl data.path={options.out} data.videos={videos}",
    }


def _rows(read: LoadReport, todo: Todo) -> dict[str, Any]:
    return {
        "rows": len(read.samples),
        "rows_rejected": len(read.rejected),
        "rows_without_video": todo.bare,
        "rows_captioned_before": todo.kept,
        "clips": len(todo.jobs),
    }


def _counts(ledger: _Ledger) -> dict[str, Any]:
    outcomes = ledger.outcomes.values()
    dropped: Counter[str] = Counter()
    for outcome in outcomes:
        dropped.update(outcome.dropped)
    return {
        "done_before": ledger.resumed,
        "clips_captioned": sum(outcome.kind is None for outcome in outcomes),
        "clips_failed": dict(Counter(outcome.kind for outcome in outcomes if outcome.kind is not None)),
        "events": sum(len(outcome.captions) for outcome in outcomes),
        "events_dropped": dict(dropped),
        **asdict(ledger.journal.spent),
        "cost": ledger.cost,
        "asked_again": dict(ledger.retried),
    }


def _failure(job: Job, outcome: Outcome) -> str:
    ref = job.ref
    cut = {"video": ref.path, "start": ref.start, "end": ref.end}
    return to_line({**cut, "kind": outcome.kind, "reason": outcome.reason, "requests": outcome.usage.requests, "rows": list(job.rows)})
