"""The default parser, and the one that the rewards use: `vtgrl.core.spans`."""

from __future__ import annotations

from dataclasses import dataclass

from vtgrl.core.registry import opt, register
from vtgrl.core.spans import SpanUnit, parse_span
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.types import Parsed

_KINDS = {"unpaired": "format"}
_FLAGS = {"several": "several_answers", "reversed": "swapped", "beyond": "beyond_duration"}


@dataclass(frozen=True)
class VtgrlConfig(ParserConfig):
    """Inclusive thresholds, best match among the true windows."""

    unit: SpanUnit = opt("seconds", "what the model was told to answer in; percent also reads a 0-99 index (bin k is k % of the clip)")
    fps: float = opt(0.0, "frames a second, for unit `frames`")


@register("parser", "vtgrl", config=VtgrlConfig)
def vtgrl(text: str, *, duration: float | None, query: str, config: VtgrlConfig) -> Parsed:
    """Last answer block before thinking; clock times, units, unicode dashes, JSON, Chinese forms; never guesses."""
    result = parse_span(text, duration=duration, query=query, unit=config.unit, fps=config.fps or None)
    if result.window is None:
        return Parsed(kind=_KINDS.get(result.kind, result.kind))
    return Parsed((result.window,), None, tuple([_FLAGS.get(flag, flag) for flag in result.flags]) if result.flags else ())
