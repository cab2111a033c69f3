"""What a prompt template returns: one user turn, in order, and the answer that SFT would teach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VIDEO: Literal["<video>"] = "<video>"
"""Stands for the clip among the parts of the user turn."""


@dataclass(frozen=True)
class Chat:
    """A template is `@register("prompt", NAME) def f(sample, *, duration, config) -> Chat`.

    `user` holds text parts and at most one VIDEO, in the order the model reads them (the order moves scores: public
    fault Time-R1#13). `target` is the assistant's text for SFT, None when the sample has no truth.

    `opening`: how a thought begins in this template, thinking left open and no end of line behind it; `events`: the sentences, one a
    line, that may follow it, in order of time. A curriculum makes prefixes of them; None: the template has no form for such thoughts.
    """

    user: tuple[str, ...]
    system: str | None = None
    target: str | None = None
    opening: str | None = None
    events: tuple[str, ...] = ()
