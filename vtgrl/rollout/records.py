"""One JSON object per prompt and step: what the trainer appends to samples.jsonl and the `replay` engine reads.

{"id": sample id, "step": 3, "prompt_ids": [...] (optional), "completions":
 [{"token_ids": [...], "logprobs": [...], "text": "...", "finish": "stop"|"length", "policy_version": 3, "given": 0}]}
Other keys (rewards, the query, ...) may stand beside these. A log-prob that the sampler could not give is null; so are those of the
first `given` tokens, which a curriculum wrote (rows without the key have none).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.types import Completion, Finish


@dataclass(frozen=True)
class Record:
    """Recorded answers to the sample `id`. `prompt_ids` is None when the writer left them out."""

    id: str
    step: int
    completions: tuple[Completion, ...]
    prompt_ids: tuple[int, ...] | None = None


def to_record(record: Record) -> dict[str, Any]:
    """As a JSON object."""
    out: dict[str, Any] = {"id": record.id, "step": record.step}
    if record.prompt_ids is not None:
        out["prompt_ids"] = list(record.prompt_ids)
    out["completions"] = [_completion_to_dict(c) for c in record.completions]
    return out


def from_record(row: Mapping[str, Any], *, where: str) -> Record:
    """From a JSON object; unknown keys are left alone.

    Raises:
        DataError: a key is missing or wrong; `where` (file:row) is named.
    """
    completions = _get(row, "completions", list, where)
    prompt_ids = row.get("prompt_ids")
    return Record(
        id=_get(row, "id", str, where),
        step=_get(row, "step", int, where),
        completions=tuple(_completion(c, where=f"{where}: completions[{i}]") for i, c in enumerate(completions)),
        prompt_ids=None if prompt_ids is None else _ids(prompt_ids, "prompt_ids", where),
    )


def _completion_to_dict(completion: Completion) -> dict[str, Any]:
    return {
        "token_ids": list(completion.token_ids),
        "logprobs": [x if math.isfinite(x) else None for x in completion.logprobs],
        "text": completion.text,
        "finish": completion.finish,
        "policy_version": completion.policy_version,
        "given": completion.given,
    }


def _completion(row: Any, *, where: str) -> Completion:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object, got {type(row).__name__}")
    token_ids = _ids(_get(row, "token_ids", list, where), "token_ids", where)
    logprobs = tuple(_logprob(x, where) for x in _get(row, "logprobs", list, where))
    if not token_ids or len(logprobs) != len(token_ids):
        raise DataError(
            f"{where}: {len(token_ids)} token_ids and {len(logprobs)} logprobs; needs at least one token, and one log-prob each"
        )
    return Completion(
        token_ids=token_ids,
        logprobs=logprobs,
        text=_get(row, "text", str, where),
        finish=_finish(row, where),
        policy_version=_get(row, "policy_version", int, where),
        given=_given(row, len(token_ids), where),
    )


def _given(row: Mapping[str, Any], tokens: int, where: str) -> int:
    given: int = _get(row, "given", int, where) if "given" in row else 0
    if not 0 <= given < tokens:
        raise DataError(f"{where}: 'given' is {given} of {tokens} tokens: at least one is the model's own")
    return given


def _get(row: Mapping[str, Any], key: str, kind: type[Any], where: str) -> Any:
    if key not in row:
        raise DataError(f"{where}: no {key!r}")
    value = row[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{where}: {key!r} must be {kind.__name__}, got {type(value).__name__}")
    return value


def _ids(values: Any, key: str, where: str) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(type(x) is int and x >= 0 for x in values):
        raise DataError(f"{where}: {key!r} must be a list of token ids")
    return tuple(values)


def _logprob(value: Any, where: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{where}: 'logprobs' must be numbers or null, got {type(value).__name__}")
    return float(value)


def _finish(row: Mapping[str, Any], where: str) -> Finish:
    finish = _get(row, "finish", str, where)
    if finish not in ("stop", "length"):
        raise DataError(f"{where}: 'finish' must be stop or length, got {finish!r}")
    return finish  # type: ignore[return-value]
