"""What passes between the parts of captioning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from vtgrl.core.types import Caption, VideoRef

FailureKind = Literal["video", "answer", "server", "refused"]
"""The clip cannot be read; no valid answer; the server gave none; the server refuses this request."""


@dataclass(frozen=True, slots=True)
class Job:
    """A clip to caption. `key`: digest of file, cut and frames (`clip_id`), "" when the file is not there. `rows`: ids of its samples."""

    key: str
    ref: VideoRef
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What answers cost. requests: that were sent; unmetered: answers of which the server told no token counts."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.unmetered + other.unmetered,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one clip: captions (at least one), or why there are none.

    dropped: reason -> events of a valid answer that were left out.
    """

    captions: tuple[Caption, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    kind: FailureKind | None = None
    reason: str = ""
    usage: Usage = Usage()


Record = Callable[[Job, Outcome], None]
"""Called once a job, always from the thread that called `ask`."""


INVALID = "invalid answer"
"""Among the reasons in `Captioner.retried`."""


class Captioner(Protocol):
    """Who writes captions."""

    retried: Counter[str]
    """Reason -> questions that were asked again for it."""

    def ask(self, jobs: Sequence[Job], record: Record) -> None:
        """Caption every clip and record it as soon as it is done. A clip that cannot be captioned is recorded with its reason.

        When it is interrupted or cannot go on, what is done by then has been recorded before the error leaves.
        """
