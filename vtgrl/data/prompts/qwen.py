"""A plain question for models that were never told how to answer: seconds, no thinking."""

from __future__ import annotations

from vtgrl.core.registry import NoConfig, register
from vtgrl.core.types import Sample
from vtgrl.data.prompts.text import clean_query, need_span, true_span
from vtgrl.data.prompts.types import VIDEO, Chat

TEXT = 'When in the video does this happen: "{query}"? Answer with the start and the end in seconds, such as "12.5 to 17.8 seconds".'


@register("prompt", "qwen")
def qwen(sample: Sample, *, duration: float, config: NoConfig) -> Chat:
    """A plain question, the video first (the reports of Qwen-VL name no prompt).

    Raises:
        DataError: not a grounding sample, or a query with a special token.
    """
    need_span(sample, "qwen")
    span = true_span(sample, duration)
    target = None if span is None else f"{span[0]:.1f} to {span[1]:.1f} seconds"
    return Chat((VIDEO, TEXT.format(query=clean_query(sample))), target=target)
