"""What a server replied: a chat completion, or a message that says why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtgrl.data.caption.http import NoReply
from vtgrl.data.caption.types import Usage

SHOWN = 800
"""Bytes of a reply that is no JSON which are taken for its message."""


@dataclass(frozen=True)
class Answer:
    """text: of the answer, "" when there is none. cut: the limit on tokens ended it. usage: of this answer and the tries before it."""

    text: str
    cut: bool
    refusal: str
    usage: Usage


def read_answer(data: bytes, *, requests: int) -> Answer:
    """The first choice of a chat completion.

    Raises:
        NoReply: it is none (a proxy's page, half a document, an error with status 200).
    """
    document = _json(data)
    choice = _first(document)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise NoReply(f"no chat completion in the reply: {server_message(data)}")
    refusal = message.get("refusal")
    return Answer(
        text=_content(message.get("content")),
        cut=choice.get("finish_reason") == "length",
        refusal=refusal if isinstance(refusal, str) else "",
        usage=_usage(_mapping(document.get("usage")), requests=requests),
    )


def _usage(tokens: Mapping[str, Any], *, requests: int) -> Usage:
    prompt, completion = tokens.get("prompt_tokens"), tokens.get("completion_tokens")
    if isinstance(prompt, int) and isinstance(completion, int):
        return Usage(requests, prompt, completion)
    return Usage(requests, unmetered=1)


def _first(document: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = document.get("choices")
    return _mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _content(content: Any) -> str:
    """Text of a message; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(str(_mapping(part).get("text") or "") for part in content)
    return content if isinstance(content, str) else ""


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def server_message(data: bytes) -> str:
    """What a server says in a reply that is no answer: its error message, else the beginning of the text."""
    document = _json(data)
    error = document.get("error", document.get("detail", document.get("message")))
    if isinstance(error, Mapping):
        error = error.get("message")
    return error if isinstance(error, str) and error.strip() else data[:SHOWN].decode(errors="replace").strip() or "no text"
