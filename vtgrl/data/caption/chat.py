"""One question to an OpenAI-compatible server, asked until there is an answer or a reason to give up."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from vtgrl.core.errors import ConfigError, RunError, VtgrlError
from vtgrl.core.log import logger
from vtgrl.data.caption.dialect import Dialect
from vtgrl.data.caption.http import NoReply, Poster, Reply, check_url, is_loopback
from vtgrl.data.caption.pace import Clock, Pace, backoff, retry_after
from vtgrl.data.caption.reply import Answer, read_answer, server_message
from vtgrl.data.caption.types import FailureKind, Usage

AGAIN = frozenset((408, 409, 425, 429))
"""Statuses below 500 that another try may change."""
LONGEST_WAIT_S = 600.0
"""A server that asks to wait longer (a daily quota) ends the run; what is done is kept."""
SHOWN = 200
"""Characters of a server's message that are quoted."""


@dataclass(frozen=True)
class ServerConfig:
    """An OpenAI-compatible server and how to treat it.

    url: base, as in https://HOST/v1. key_env: environment variable with the key; unset: no key is sent. timeout_s: of one request.
    retries: of a request that got no usable reply. base_wait_s: before the first of them, then doubled. per_minute: requests, 0: no limit.
    """

    url: str
    model: str
    key_env: str = "OPENAI_API_KEY"
    max_tokens: int = 4096
    timeout_s: float = 120.0
    retries: int = 5
    base_wait_s: float = 1.0
    per_minute: float = 0.0


class Unanswered(Exception):
    """No answer to this question. `usage`: requests that were spent on it."""

    def __init__(self, kind: FailureKind, why: str, usage: Usage) -> None:
        super().__init__(why)
        self.kind, self.why, self.usage = kind, why, usage


class ChatServer:
    """Asks from any number of threads. The key is in the request's header and nowhere else."""

    def __init__(self, config: ServerConfig, *, clock: Clock, dice: random.Random | None = None) -> None:
        """Raises:
        ConfigError: the address or the key cannot be used.
        """
        self.config = config
        parts = check_url(config.url)
        self.place = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._key = read_key(config.key_env)
        if self._key and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            logger.warning("%s: the key goes there unencrypted", self.place)
        url = f"{self.place}/chat/completions" + (f"?{parts.query}" if parts.query else "")
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self.poster = Poster(url, headers=headers, timeout_s=config.timeout_s)
        self.heard = False
        """Whether the server has ever replied."""
        self.retried: Counter[str] = Counter()
        self._pace = Pace(clock, per_minute=config.per_minute)
        self.clock, self._dice = clock, dice or random.Random()
        self._dialect, self._lock = Dialect(), threading.Lock()

    def ask(self, parts: list[dict[str, Any]]) -> Answer:
        """Send one user turn.

        Raises:
            Unanswered: refused, or no usable reply after all retries.
            ConfigError, RunError: no request of this run can succeed (key, model, address, quota).
            Stopped: the run ends.
        """
        failures, requests = 0, 0
        while True:
            self._pace.turn()
            dialect = self._dialect
            body = dialect.body(model=self.config.model, parts=parts, max_tokens=self.config.max_tokens)
            requests += 1
            try:
                reply = self.poster.post(json.dumps(body).encode())
                self.heard = True
                if reply.status == 200:
                    return read_answer(reply.data, requests=requests)
                why = self._judge(reply, dialect, requests)
            except NoReply as error:
                why = f"no reply: {error}"
            if why is None:
                continue  # the same question in the server's own dialect
            failures += 1
            if failures > self.config.retries:
                raise Unanswered("server", f"{self._clean(why)} ({requests} requests)", Usage(requests))
            self._wait(failures, self._clean(why))

    def count_again(self, reason: str) -> None:
        """One more question is asked again for this reason."""
        with self._lock:
            self.retried[reason] += 1

    def close(self) -> None:
        """Let go of all requests and waits."""
        self.clock.stop()
        self.poster.close()

    def _judge(self, reply: Reply, dialect: Dialect, requests: int) -> str | None:
        """Why to ask again later; None: at once, in another dialect. Raises what ends it. A server that asks to wait means all of us."""
        message = server_message(reply.data)
        said = self._clean(message)
        if reply.status in AGAIN or reply.status >= 500:
            if "insufficient_quota" in reply.data.decode(errors="replace"):
                raise RunError(f"{self.place}: the account has no quota left: {said}")
            wait = retry_after(reply.headers, now=time.time())
            if wait is not None and wait > LONGEST_WAIT_S:
                raise RunError(f"{self.place}: status {reply.status} asks to wait {wait:.0f} s: {said}; run again later")
            if wait is not None:
                self._pace.hold(wait)
            return f"status {reply.status}: {said}" + ("" if wait is None else f" (wait {wait:g} s)")
        fatal = self._fatal(reply, said)
        if fatal is not None:
            raise fatal
        if self._adapted(dialect, message):
            return None
        raise Unanswered("refused", f"status {reply.status}: {said}", Usage(requests))

    def _fatal(self, reply: Reply, said: str) -> VtgrlError | None:
        """The error that ends the run, None when only this question is refused."""
        status, env = reply.status, self.config.key_env
        if status in (401, 403):
            advice = f"check the key in {env}" if self._key else f"set {env} to your key"
            return ConfigError(f"{self.place}: status {status}, the key is not accepted; {advice} (server: {said})")
        if status in (404, 405):
            return ConfigError(
                f"{self.place}: status {status}, no model {self.config.model!r} at this address; check --model and --openai-base-url, "
                f"which often ends in /v1 (server: {said})"
            )
        if status == 402:
            return RunError(f"{self.place}: status 402, payment required (server: {said})")
        if status < 400:
            where = self._clean(reply.headers.get("location", ""))
            return ConfigError(f"{self.place}: status {status} is no answer; the server points to {where or 'nowhere'}: use its address")
        return None

    def _adapted(self, used: Dialect, complaint: str) -> bool:
        """Whether the question may be sent again, without what the server complains of. All threads learn it; it is said once."""
        with self._lock:
            change = self._dialect.without(complaint)
            if change is not None:
                self._dialect, what = change
                logger.info("%s %s", self.place, what)
            return self._dialect != used

    def _wait(self, failures: int, why: str) -> None:
        self.count_again(why.partition(":")[0])
        with self._lock:
            pause = backoff(failures, base_s=self.config.base_wait_s, dice=self._dice)
        logger.info("%s: %s; again after %.1f s", self.place, why, pause)
        self.clock.wait(pause)

    def _clean(self, text: str) -> str:
        """One line, not long, without the key: servers quote it."""
        text = " ".join(text.split())
        if self._key:
            text = text.replace(self._key, "***")
        return text[:SHOWN] + ("..." if len(text) > SHOWN else "")


def read_key(name: str) -> str:
    """The key in this environment variable, "" when it is not set.

    Raises:
        ConfigError: it holds what cannot stand in a header; the message does not show it.
    """
    key = os.environ.get(name, "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the environment variable {name} holds no key: a key is printable ASCII without spaces")
    return key
