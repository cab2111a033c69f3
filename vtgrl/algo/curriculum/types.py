"""What a curriculum sees and returns: which tokens the answers of one step begin with. No I/O, no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """What answers to one prompt may begin with.

    `text`: the beginning of a thought, thinking left open, without an end of line. `lines`: what happens in the clip, in order of
    time, a sentence with its time range each; empty: nothing is known, so every answer is free. `copy`: how many of the step's
    prompts before this one ask the same sample (0 for the first), counted over all ranks.
    """

    sample_id: str
    copy: int
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class CurriculumInputs:
    """One step's prompts of this rank. `epoch`: passes over the data done when the step begins (1.5: in the middle of the second).

    `members`: answers a prompt. `max_tokens`: longest answer, prefix included. `encode`: text to ids, without special tokens.
    """

    openings: Sequence[Opening]
    members: int
    seed: int
    step: int
    epoch: float
    max_tokens: int
    encode: Callable[[str], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first tokens of one answer; none: the answer is free. `lines`: which of the opening's lines they hold, ascending.

    `left_out`: lines that were drawn and did not fit into the budget.
    """

    token_ids: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class CurriculumOutput:
    """`prefixes[i][m]`: of answer m to prompt i. `p`: probability of a prefix at this step.

    A curriculum is `@register("curriculum", NAME, config=...) def f(inputs: CurriculumInputs, *, config) -> CurriculumOutput`, a pure
    function of its inputs: a resumed run, and a run on another number of ranks, continue the same one.
    """

    prefixes: tuple[tuple[Prefix, ...], ...]
    p: float
