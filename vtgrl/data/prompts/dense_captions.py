"""All that happens in a clip, as JSON with times: what `vtgrl data caption` asks, and a form to teach a captioner with SFT."""

from __future__ import annotations

import json

from vtgrl.core.registry import NoConfig, register
from vtgrl.core.types import Sample
from vtgrl.data.prompts.text import no_special_token
from vtgrl.data.prompts.types import VIDEO, Chat

TEXT = """\
The video is {duration:.2f} seconds long. List all that happens in it, in order of time, as atomic events: one action or one change each, \
with the seconds from the beginning of the video at which it starts and ends. Go through the whole video; events may overlap. \
Write what can be seen and nothing that is guessed. An event is one short sentence in the present tense that states no time.
Answer with JSON alone, in this form:
{{"events": [{{"start": 0.0, "end": 3.5, "event": "a man opens a door."}}, {{"start": 2.8, "end": 6.1, "event": "a dog runs in."}}]}}"""


@register("prompt", "dense_captions")
def dense_captions(sample: Sample, *, duration: float, config: NoConfig) -> Chat:
    """Everything that happens, as JSON with times; the target is the row's captions.

    The query is not in it: captions must not know what is sought.

    Raises:
        DataError: a caption with a special token.
    """
    return Chat((VIDEO, TEXT.format(duration=duration)), target=_target(sample, duration))


def _target(sample: Sample, duration: float) -> str | None:
    inside = sorted((c for c in sample.captions if c.start < duration), key=lambda c: (c.start, c.end))
    events = [
        {"start": round(c.start, 2), "end": round(min(c.end, duration), 2), "event": no_special_token(c.text, sample)} for c in inside
    ]
    return json.dumps({"events": events}, ensure_ascii=False) if events else None
