"""A prompt of few tokens, for tiny models: the video, the query, and an answer such as "1.00s to 2.50s"."""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample
from vtgrl.data.caption_text import seconds
from vtgrl.data.prompts.text import clean_query, need_span, true_span
from vtgrl.data.prompts.types import VIDEO, Chat


@dataclass(frozen=True)
class DirectPrompt:
    """Query only."""

    think: bool = opt(False, "the answer to learn starts with a short thinking block (the query once more)")


@register("prompt", "direct", config=DirectPrompt)
def direct(sample: Sample, *, duration: float, config: DirectPrompt) -> Chat:
    """The query and nothing else; answers "1.00s to 2.50s".

    Raises:
        DataError: not a grounding sample, or a query with a special token.
    """
    need_span(sample, "direct")
    query = clean_query(sample)
    span = true_span(sample, duration)
    if span is None:
        return Chat((VIDEO, query))
    thought = f"<think>{query}</think>" if config.think else ""
    return Chat((VIDEO, query), target=f"{thought}<answer>{seconds(span[0])} to {seconds(span[1])}</answer>")
