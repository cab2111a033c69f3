"""The form of Time-R1: think, then an answer such as "12.54 to 17.83" (no unit)."""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample
from vtgrl.data.prompts.text import caption_lines, clean_query, need_span, thought_and_answer, true_span
from vtgrl.data.prompts.types import VIDEO, Chat

TEXT = """\
Watch the video and find the one stretch of time that fits this description: "{query}".
Think it through first: what happens, in which order, and at what times. Put these thoughts between <think> and </think>.
Then state where the stretch begins and ends, in seconds with two decimals, between <answer> and </answer>.
An answer looks like this: <answer>12.54 to 17.83</answer>"""


@dataclass(frozen=True)
class TimeR1Prompt:
    """Time-R1's form."""

    text_first: bool = opt(
        False, "instruction before the video, as Time-R1 trains (it evaluates with the video first; the order moves scores)"
    )


@register("prompt", "time_r1", config=TimeR1Prompt, paper="arXiv:2503.13377")
def time_r1(sample: Sample, *, duration: float, config: TimeR1Prompt) -> Chat:
    """Think, then "12.54 to 17.83".

    Raises:
        DataError: not a grounding sample, or a query with a special token.
    """
    need_span(sample, "time_r1")
    query = clean_query(sample)
    text = TEXT.format(query=query)
    user = (text, VIDEO) if config.text_first else (VIDEO, text)
    return Chat(user, target=_target(sample, query, duration))


def _target(sample: Sample, query: str, duration: float) -> str | None:
    span = true_span(sample, duration)
    if span is None:
        return None
    answer = f"{span[0]:.2f} to {span[1]:.2f}"
    thought = "\n".join([*caption_lines(sample, duration), f"So the stretch that fits is {answer}."])
    return thought_and_answer(thought, answer)
