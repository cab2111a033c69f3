"""Captions from a server: many clips at a time, each decoded, asked about, checked, and asked about again when the answer is no good."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from vtgrl.core.digest import digest
from vtgrl.core.errors import DataError, RunError
from vtgrl.core.schema import VideoConfig
from vtgrl.data.caption.chat import ChatServer, ServerConfig, Unanswered
from vtgrl.data.caption.clips import frame_policy
from vtgrl.data.caption.frames import PROMPT_VERSION, user_parts
from vtgrl.data.caption.pace import Clock, RealClock, Stopped
from vtgrl.data.caption.parse import Refused, parse_events
from vtgrl.data.caption.reply import Answer
from vtgrl.data.caption.types import INVALID, Job, Outcome, Record, Usage
from vtgrl.data.video.reader import ClipLoader
from vtgrl.data.video.types import Clip


def server_mark(model: str) -> str:
    """Digest of model and prompt; not of the address: one model behind two doors is one model."""
    return digest(["openai", model, PROMPT_VERSION])


class ServerCaptioner:
    """Captions from an OpenAI-compatible server. See Captioner."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        video: VideoConfig,
        tries: int = 3,
        concurrency: int = 4,
        give_up: int = 8,
        clock: Clock | None = None,
    ) -> None:
        """tries: answers to one clip. concurrency: clips at a time. give_up: clips in a row that the server answers nothing about end
        the run (0: never); before its first reply of all, one is enough.

        Raises:
            ConfigError: the address, the key or the frame settings cannot be used.
        """
        self.server = ChatServer(config, clock=clock or RealClock())
        self.retried = self.server.retried
        self._policy, self._video = frame_policy(video), video
        self._tries, self._concurrency, self._give_up = tries, concurrency, give_up
        self._silent = 0
        self._stopped = False

    def ask(self, jobs: Sequence[Job], record: Record) -> None:
        """See Captioner.

        Raises:
            ConfigError, RunError: no request can succeed; the server has gone.
            KeyboardInterrupt: passed on.
        """
        video = self._video
        with ClipLoader(self._policy, backend=video.backend, timeout_s=video.timeout_s, workers=video.workers) as loader:
            loader.prefetch(job.ref for job in jobs)
            pool = ThreadPoolExecutor(self._concurrency, "vtgrl-caption")
            futures = {pool.submit(self._caption, job, loader): job for job in jobs}
            try:
                self._collect(futures, record)
            finally:
                self._stopped = True
                self.server.close()
                pool.shutdown(cancel_futures=True)
                for future in [f for f in futures if f.done() and not f.cancelled() and f.exception() is None]:
                    record(futures.pop(future), future.result())

    def _collect(self, futures: dict[Future[Outcome], Job], record: Record) -> None:
        """Record what is done until nothing is left; a thread's error leaves here."""
        done: SimpleQueue[Future[Outcome]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        while futures:
            future = done.get()
            outcome = future.result()
            record(futures.pop(future), outcome)
            self._watch(outcome)

    def _watch(self, outcome: Outcome) -> None:
        """Stop when the server has gone: the clips that are left would all fail, slowly."""
        if outcome.kind == "video":
            return
        self._silent = self._silent + 1 if outcome.kind in ("server", "refused") else 0
        if not self.server.heard and self._silent:
            raise RunError(f"{self.server.place}: nothing answers there ({outcome.reason}); is the server running?")
        if self._give_up and self._silent >= self._give_up:
            raise RunError(f"{self.server.place}: no answer to {self._silent} clips in a row, last: {outcome.reason}; what is done is kept")

    def _caption(self, job: Job, loader: ClipLoader) -> Outcome:
        """One clip, in a thread of the pool."""
        if self._stopped:
            raise Stopped
        try:
            clip = loader.load(job.ref)
        except DataError as error:
            return Outcome(kind="video", reason=str(error))
        try:
            return self._converse(clip)
        except Unanswered as error:
            return Outcome(kind=error.kind, reason=error.why, usage=error.usage)

    def _converse(self, clip: Clip) -> Outcome:
        """Ask until an answer is valid, each time with what was wrong with the one before."""
        usage, reason = Usage(), ""
        for _ in range(self._tries):
            try:
                answer = self.server.ask(user_parts(clip, refused=reason))
            except Unanswered as error:
                raise Unanswered(error.kind, error.why, usage + error.usage) from error
            usage += answer.usage
            try:
                parsed = parse_events(answer.text, duration=clip.duration)
            except Refused as error:
                reason = explain(answer, str(error))
                self.server.count_again(INVALID)
                continue
            return Outcome(parsed.captions, parsed.dropped, usage=usage)
        return Outcome(kind="answer", reason=f"{reason} ({self._tries} answers)", usage=usage)


def explain(answer: Answer, fault: str) -> str:
    """Why an answer is no good: where it was cut or refused, that is the cause of all else."""
    if answer.cut:
        return f"{fault}: it was cut at the longest answer; be shorter"
    return f"the model refuses: {answer.refusal}" if answer.refusal else fault
