"""The request's settings, and what to change when a server does not take one: OpenAI-compatible servers differ in three of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "events": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"start": {"type": "number"}, "end": {"type": "number"}, "event": {"type": "string"}},
                "required": ["start", "end", "event"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["events"],
    "additionalProperties": False,
}
"""Of an answer. An object at the root and every key required: what strict mode asks for."""


@dataclass(frozen=True)
class Dialect:
    """What this server is sent: an answer's JSON schema, a temperature, the name of the limit on an answer's tokens."""

    schema: bool = True
    temperature: bool = True
    limit_key: str = "max_tokens"

    def body(self, *, model: str, parts: list[dict[str, Any]], max_tokens: int) -> dict[str, Any]:
        """A chat completion request with one user turn."""
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": parts}], self.limit_key: max_tokens}
        if self.temperature:
            body["temperature"] = 0.0
        if self.schema:
            schema = {"name": "events", "strict": True, "schema": SCHEMA}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def without(self, complaint: str) -> tuple[Dialect, str] | None:
        """(what to send instead, what was changed) after a refusal with these words; None: they name none of the three."""
        for word, applies, change, said in _CHANGES:
            if applies(self) and re.search(word, complaint, re.I):
                return replace(self, **change), said
        return None


_CHANGES: tuple[tuple[str, Callable[[Dialect], bool], dict[str, Any], str], ...] = (
    (
        "response_?format|json_?schema|guided|structured",
        lambda dialect: dialect.schema,
        {"schema": False},
        "takes no JSON schema: answers are only checked",
    ),
    (
        "use .?max_completion_tokens",
        lambda dialect: dialect.limit_key == "max_tokens",
        {"limit_key": "max_completion_tokens"},
        "wants max_completion_tokens in place of max_tokens",
    ),
    ("temperature", lambda dialect: dialect.temperature, {"temperature": False}, "takes no temperature: it samples as it likes"),
)
"""(words of the refusal, whether it can be changed, what, what to say about it)."""
