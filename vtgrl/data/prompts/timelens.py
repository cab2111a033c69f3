"""The form of TimeLens: one sentence with the span in seconds."""

from __future__ import annotations

from vtgrl.core.registry import NoConfig, register
from vtgrl.core.types import Sample
from vtgrl.data.prompts.text import clean_query, need_span, true_span
from vtgrl.data.prompts.types import VIDEO, Chat

TEXT = (
    'Find the moment of the video that this sentence tells of: "{query}". Give its first and last second in exactly this form: '
    "The event happens in <start> - <end> seconds."
)


@register("prompt", "timelens", paper="arXiv:2512.14698")
def timelens(sample: Sample, *, duration: float, config: NoConfig) -> Chat:
    """Answers "The event happens in 8.5 - 12.4 seconds.", no thinking.

    Raises:
        DataError: not a grounding sample, or a query with a special token.
    """
    need_span(sample, "timelens")
    span = true_span(sample, duration)
    target = None if span is None else f"The event happens in {span[0]:.1f} - {span[1]:.1f} seconds."
    return Chat((VIDEO, TEXT.format(query=clean_query(sample))), target=target)
