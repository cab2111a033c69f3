"""Format reward: 1 when the answer has the shape that the prompt asked for, else 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vtgrl.core.registry import opt, register
from vtgrl.core.spans import parse_span
from vtgrl.reward.types import RewardConfig, RewardOutput, RewardRow

_JOINT = re.compile(r"</think>\s*<answer>")
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


@dataclass(frozen=True)
class FormatConfig(RewardConfig):
    """Settings of the format reward."""

    form: Literal["strict", "taro", "time_r1"] = opt(
        "strict", "time_r1: a think block, then an answer block; taro: each tag exactly once as well; strict: the answer parses as well"
    )
    think: bool = opt(True, "false: one answer block spans the whole text (no-think prompts)")


@register("reward", "format", config=FormatConfig, paper="arXiv:2503.13377")
def format_reward(rows: Sequence[RewardRow], *, config: FormatConfig) -> RewardOutput:
    """1 for a well-formed think-then-answer text, else 0 (forms of Time-R1, TaRO and a strict one)."""
    return RewardOutput(tuple(float(_well_formed(row, config)) for row in rows))


def _well_formed(row: RewardRow, config: FormatConfig) -> bool:
    text = without_end_tokens(row.completion.text)
    if not has_shape(text, think=config.think):
        return False
    if config.form != "time_r1" and not _each_tag_once(text, think=config.think):
        return False
    return config.form != "strict" or _answers(row, text)


def without_end_tokens(text: str) -> str:
    """Stripped text without `<|im_end|>` and the like behind it: whether they are decoded is no merit of the answer."""
    text = text.strip()
    while text.endswith("|>") and "<|" in text:
        text = text[: text.rindex("<|")].rstrip()
    return text


def has_shape(text: str, *, think: bool = True) -> bool:
    """Whether a stripped text is `<think>…</think> <answer>…</answer>` (or the answer block alone), anything inside.

    Same verdict as a full match of those patterns, without their back-tracking.
    """
    if not text.endswith("</answer>") or not text.startswith("<think>" if think else "<answer>"):
        return False
    return not think or _JOINT.search(text, len("<think>")) is not None


def _each_tag_once(text: str, *, think: bool) -> bool:
    wanted = (1, 1, 1, 1) if think else (0, 0, 1, 1)
    return tuple(text.count(tag) for tag in _TAGS) == wanted


def _answers(row: RewardRow, text: str) -> bool:
    """A grounding answer states a span; any other answer is not empty."""
    if row.sample.task == "vtg":
        return parse_span(text, query=row.sample.query).window is not None
    return bool(text[text.rindex("<answer>") + len("<answer>") : -len("</answer>")].strip())
