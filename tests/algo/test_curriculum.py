"""Imitate-then-explore: what a prefix is made of, when there is one, and that a draw depends on nothing else (taro.md 3 and T13-T19)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from vtgrl.algo.curriculum.imitate_then_explore import ImitateThenExploreConfig, probability
from vtgrl.algo.curriculum.types import CurriculumInputs, CurriculumOutput, Opening, Prefix
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import get, names

LINES = ("From 0s to 1s, a.", "From 1s to 2s, b.", "From 2s to 3s, c.", "From 3s to 4s, d.")
OPENING = Opening("s1", 0, "<think>\nWhat is sought: b.", LINES)


def encode(text: str) -> tuple[int, ...]:
    """A character, a token."""
    return tuple(map(ord, text))


def inputs(*openings: Opening, members: int = 8, **changes: Any) -> CurriculumInputs:
    base = CurriculumInputs(openings or (OPENING,), members, seed=0, step=0, epoch=0.0, max_tokens=1000, encode=encode)
    return replace(base, **changes)


def draw(given: CurriculumInputs, name: str = "imitate_then_explore", **config: Any) -> CurriculumOutput:
    entry = get("curriculum", name)
    output: CurriculumOutput = entry.fn(given, config=entry.config(**{"group_share": 1.0, **config} if name != "none" else config))
    return output


def text(prefix: Prefix) -> str:
    return "".join(map(chr, prefix.token_ids))


def test_none_is_free_and_the_default() -> None:
    from vtgrl.core.schema import GrpoRecipe

    assert draw(inputs(members=2), "none") == CurriculumOutput(((Prefix(), Prefix()),), 0.0)
    assert {"none", "imitate_then_explore"} <= set(names("curriculum"))
    assert GrpoRecipe.__dataclass_fields__["curriculum"].default == "none"


def test_a_prefix_is_the_opening_and_distinct_captions_in_order_without_a_last_newline() -> None:
    for prefix in draw(inputs(members=64)).prefixes[0]:
        head, *lines = text(prefix).split("\n")[1:]
        assert text(prefix).startswith("<think>\n")
        assert head == "What is sought: b."
        assert lines == [LINES[i] for i in prefix.lines]
        assert list(prefix.lines) == sorted(set(prefix.lines))
        assert 1 <= len(prefix.lines) <= 4
        assert "</think>" not in text(prefix)


def test_the_number_of_captions_is_uniform_and_so_is_which() -> None:
    """P(all n) = 1/n, E[k] = (n + 1)/2, a caption is in with probability (n + 1)/(2 n)."""
    drawn = [p for step in range(250) for p in draw(inputs(members=16, step=step)).prefixes[0]]
    counts = Counter(len(p.lines) for p in drawn)
    assert {k: round(c / len(drawn), 1) for k, c in counts.items()} == dict.fromkeys((1, 2, 3, 4), pytest.approx(0.25, abs=0.05))
    for line in range(4):
        assert sum(line in p.lines for p in drawn) / len(drawn) == pytest.approx(5 / 8, abs=0.03)


def test_members_copies_samples_steps_and_seeds_draw_their_own() -> None:
    base = draw(inputs(members=16)).prefixes[0]
    assert len({p.lines for p in base}) > 4  # not one subset for the whole group
    for other in (
        inputs(replace(OPENING, copy=1), members=16),
        inputs(replace(OPENING, sample_id="s2"), members=16),
        inputs(members=16, step=1),
        inputs(members=16, seed=1),
    ):
        assert draw(other).prefixes[0] != base


def test_a_draw_depends_on_no_other_prompt_of_the_rank() -> None:
    others = [replace(OPENING, sample_id=f"o{i}") for i in range(3)]
    alone, together = draw(inputs()), draw(inputs(others[0], OPENING, *others[1:]))
    assert together.prefixes[1] == alone.prefixes[0]
    assert draw(inputs(), p=0.5) == draw(inputs(), p=0.5)


def test_rows_without_captions_are_free() -> None:
    output = draw(inputs(replace(OPENING, lines=()), OPENING))
    assert output.prefixes[0] == (Prefix(),) * 8
    assert all(p.token_ids for p in output.prefixes[1])


@pytest.mark.parametrize(
    ("schedule", "expected"), [("const", (0.8, 0.8, 0.8, 0.8)), ("linear", (0.8, 0.6, 0.4, 0.2)), ("cosine", (0.8, 0.6828, 0.4, 0.1172))]
)
def test_schedules_end_after_all_warmup_epochs(schedule: Any, expected: tuple[float, ...]) -> None:
    """T16: two epochs of a linear warm-up do not end with the first."""
    config = ImitateThenExploreConfig(schedule=schedule, warmup_epochs=2.0, p=0.8)
    assert [probability(e, config) for e in (0.0, 0.5, 1.0, 1.5)] == pytest.approx(expected, abs=1e-3)
    assert [probability(e, config) for e in (2.0, 2.5, 9.0)] == [0.0, 0.0, 0.0]
    assert probability(0.0, replace(config, warmup_epochs=0.0)) == 0.0


def test_after_the_warmup_every_answer_is_free() -> None:
    output = draw(inputs(epoch=1.0))
    assert output == CurriculumOutput(((Prefix(),) * 8,), 0.0)


def test_the_probability_is_that_of_each_answer() -> None:
    drawn = [bool(p.token_ids) for step in range(200) for p in draw(inputs(step=step), p=0.3).prefixes[0]]
    assert sum(drawn) / len(drawn) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(("share", "most"), [(1.0, 8), (0.75, 6), (0.5, 4), (0.3, 2)])
def test_a_group_keeps_free_answers(share: float, most: int) -> None:
    """T19: when all captions lead nowhere, there is still something to compare. Each member is as likely to be free as any other."""
    chosen: Counter[int] = Counter()
    for step in range(100):
        group = draw(inputs(step=step), group_share=share).prefixes[0]
        assert sum(bool(p.token_ids) for p in group) == most
        chosen.update(m for m, p in enumerate(group) if p.token_ids)
    assert max(chosen.values()) - min(chosen.values()) <= 30


def test_a_share_of_less_than_one_answer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"curriculum\.group_share: 0\.3 of rollout\.n = 2 answers is less than one"):
        draw(inputs(members=2), group_share=0.3)


def test_a_prefix_stays_inside_its_budget_by_dropping_captions() -> None:
    """T13: captions can never fill the answer. The last drawn go first, so the rest is still a random subset."""
    full = draw(inputs(members=64)).prefixes[0]
    head = len(encode(OPENING.text))
    budget = head + 2 * (len(LINES[0]) + 1)  # two captions fit
    for before, after in zip(full, draw(inputs(members=64, max_tokens=2 * budget)).prefixes[0], strict=True):
        assert 0 < len(after.token_ids) <= budget
        assert len(after.lines) == min(2, len(before.lines))
        assert set(after.lines) <= set(before.lines)
        assert after.left_out == len(before.lines) - len(after.lines)
    chosen = Counter(p.lines[0] for p in draw(inputs(members=256, max_tokens=2 * (head + 20))).prefixes[0])
    assert min(chosen.values()) > 40  # one caption fits: each equally often


def test_an_answer_is_free_when_no_caption_fits() -> None:
    group = draw(inputs(max_tokens=2 * len(encode(OPENING.text)))).prefixes[0]
    assert not any(p.token_ids for p in group)
    assert all(p.left_out >= 1 for p in group)
