"""lmms-eval, Charades-STA until May 2026 (tasks/charades_sta/eval_tvg.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.eval.parsers.base import ParserConfig
from vtgrl.eval.parsers.timechat import EXAMPLE, dash_spans, first_clocks, first_in_order, first_numbers, keyword_sentences, paired
from vtgrl.eval.types import Parsed, Policy


@dataclass(frozen=True)
class LmmsOldConfig(ParserConfig):
    """Inclusive thresholds; 0/0 raises in the original."""

    policy: Policy = opt("first", "several true windows: best match, the first one, or all as a set")
    zero_hull: Literal["zero", "nan", "crash"] = opt("crash", "what the original does on 0/0")


@register("parser", "lmms_old", config=LmmsOldConfig)
def lmms_old(text: str, *, duration: float | None, query: str, config: LmmsOldConfig) -> Parsed:
    """Only sentences that say start, end or happen; every "to" becomes "-"; clock ranges are misread (00:08 - 00:12 is 0 - 8)."""
    sentences = keyword_sentences(text.lower().replace(EXAMPLE, "").replace("to", "-"))
    return Parsed(first_in_order(dash_spans(sentences) or paired(first_numbers(sentences)) or paired(first_clocks(sentences))))
