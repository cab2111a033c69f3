"""The question as it stands, with its options: for question answering and for text-only models."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

from vtgrl.core.errors import DataError
from vtgrl.core.registry import opt, register
from vtgrl.core.types import Sample
from vtgrl.data.prompts.text import no_special_token
from vtgrl.data.prompts.types import VIDEO, Chat


@dataclass(frozen=True)
class PlainPrompt:
    """The question as it stands."""

    instruction: str = opt("", "a line after the question and its options")


@register("prompt", "plain", config=PlainPrompt)
def plain(sample: Sample, *, duration: float, config: PlainPrompt) -> Chat:
    """Clip (if any), question, lettered options; the target is the row's answer.

    Raises:
        DataError: more than 26 options, or a text with a special token.
    """
    if len(sample.options) > len(ascii_uppercase):
        raise DataError(f"sample {sample.id!r}: {len(sample.options)} options; at most {len(ascii_uppercase)} have a letter")
    options = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, sample.options, strict=False)]
    lines = [sample.query.strip(), *options, *filter(None, [config.instruction])]
    text = no_special_token("\n".join(lines), sample)
    return Chat((text,) if sample.video is None else (VIDEO, text), target=sample.answer)
