"""The form of TaRO: video first, thoughts as lines with time ranges, an answer such as "8.50s to 12.40s"."""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.core.seeds import derive_seed
from vtgrl.core.types import Sample
from vtgrl.data.caption_text import seconds
from vtgrl.data.prompts.text import caption_lines, clean_query, need_span, thought_and_answer, true_span
from vtgrl.data.prompts.types import VIDEO, Chat

END_MARKS = ("", ".", "?", "!")
"""Behind one of these, or nothing, a sentence needs no period."""

TEXT = """\
When in the video does this take place: "{query}"?
Reason before you answer, between <think> and </think>: go through what you see, one line for each thing that happens, \
and give every line its time or its time range.
Finish with the start and the end between <answer> and </answer>, in seconds with two decimals and an s after each number.

Here is a complete reply to another query, "the dog jumps over the fence":
<think>
What is sought: the dog jumps over the fence.
From 0.00s to 5.20s, the dog runs across the meadow.
At 6.10s, it stops in front of the fence.
From 8.50s to 12.40s, it crouches, jumps and lands on the other side.
Therefore the sought moment is the last of these.
</think>
<answer>8.50s to 12.40s</answer>"""


@dataclass(frozen=True)
class TaroPrompt:
    """TaRO's form."""

    instruction: bool = opt(True, "false: the query alone, for tiny models, which learn the form from SFT")
    event_share: float = opt(
        1.0,
        "SFT: share of the rows (chosen by id) whose thought names the captions and the span; the others' thought only names the query",
        ge=0,
        le=1,
    )


@register("prompt", "taro", config=TaroPrompt, paper="arXiv:2606.09248")
def taro(sample: Sample, *, duration: float, config: TaroPrompt) -> Chat:
    """Thoughts as lines with time ranges, then "8.50s to 12.40s".

    Raises:
        DataError: not a grounding sample, or a query with a special token.
    """
    need_span(sample, "taro")
    query = clean_query(sample)
    opener = f"What is sought: {query}" + "." * (query[-1:] not in END_MARKS)
    events = tuple(caption_lines(sample, duration))
    user = TEXT.format(query=query) if config.instruction else query
    with_events = derive_seed("taro", sample.id) < config.event_share * 2**31
    target = _target(sample, opener, events if with_events else None, duration)
    return Chat((VIDEO, user), target=target, opening=f"<think>\n{opener}", events=events)


def _target(sample: Sample, opener: str, events: tuple[str, ...] | None, duration: float) -> str | None:
    span = true_span(sample, duration)
    if span is None:
        return None
    answer = f"{seconds(span[0])} to {seconds(span[1])}"
    lines = [opener] if events is None else [opener, *events, f"Therefore the sought moment is from {answer}."]
    return thought_and_answer("\n".join(lines), answer)
