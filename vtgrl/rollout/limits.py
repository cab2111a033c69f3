"""How long an answer may get: the sampling limit, or what the context leaves."""

from __future__ import annotations

from collections.abc import Sequence

from vtgrl.core.errors import DataError
from vtgrl.core.schema import SamplingConfig
from vtgrl.model.types import Prompt


def answer_limit(prompt: Prompt, *, sampling: SamplingConfig, max_model_len: int) -> int:
    """Tokens that an answer to this prompt may have.

    Raises:
        DataError: the prompt alone fills the context; names the row.
    """
    room = max_model_len - len(prompt.input_ids)
    if room < 1:
        raise DataError(
            f"row {prompt.sample.id}: the prompt has {len(prompt.input_ids)} tokens, so max_model_len {max_model_len} leaves no room "
            "for an answer; lower video.total_pixels or data.max_prompt_tokens"
        )
    return min(sampling.max_tokens, room)


def member_prefixes(prompt: Prompt, given: Sequence[tuple[int, ...]] | None, *, n: int, limit: int) -> list[tuple[int, ...]]:
    """What each of the n answers to a prompt begins with; `()` without a prefix.

    Raises:
        DataError: a prefix that fills the answer; names the row.
    """
    if given is None:
        return [()] * n
    assert len(given) == n, f"{len(given)} prefixes for {n} answers"
    longest = max(map(len, given))
    if longest >= limit:
        raise DataError(
            f"row {prompt.sample.id}: its prefix has {longest} tokens and an answer at most {limit}: nothing is left for the model; "
            "lower curriculum.budget or raise rollout.sampling.max_tokens"
        )
    return list(given)
