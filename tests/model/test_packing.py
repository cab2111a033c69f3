"""Layout of packed rows, rows from groups, work over ranks, padding of values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vtgrl.core.errors import DataError
from vtgrl.core.types import Sample
from vtgrl.model.packing import answer_lengths, cost, make_rows, pack_row, pad_count, pad_rows, unpad_rows
from vtgrl.model.types import PackedGroup, Prompt


def toy(prompt: int, *answers: int, name: str = "s", next_position: int | None = None) -> PackedGroup:
    """Prompt ids 1, 2, ...; the answers' ids go on from there."""
    ids = iter(range(1, 10_000))
    prompt_ids = tuple(next(ids) for _ in range(prompt))
    positions = torch.arange(prompt).expand(3, -1)
    after = prompt if next_position is None else next_position
    record = Prompt(Sample(name, "text", "q"), "", prompt_ids, (), torch.zeros(0, dtype=torch.int64), positions, after, 0.0)
    return PackedGroup(record, tuple(tuple(next(ids) for _ in range(n)) for n in answers))


def test_a_row_by_hand() -> None:
    """Two groups: prompt 3 with answers 2 and 1 (positions go on at 7), prompt 2 with one answer of 3."""
    row = (toy(3, 2, 1, next_position=7), toy(2, 3))
    packed = pack_row(row)
    assert packed.ids_T.tolist() == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5]
    assert packed.positions_3T.tolist() == [[0, 1, 2, 7, 8, 7, 0, 1, 2, 3, 4]] * 3
    # the prompt's last row predicts each first token; an answer's last row is not read
    assert packed.read_R.tolist() == [2, 3, 2, 7, 8, 9]
    assert packed.target_R.tolist() == [4, 5, 6, 3, 4, 5]
    assert answer_lengths(row) == (2, 1, 3)
    first, second = packed.layout.segments
    assert (first.start, first.prompt, first.answers, first.end) == (0, 3, (2, 1), 6)
    assert [t.tolist() for t in first.same_length] == [[[5]], [[3, 4]]]
    assert (second.start, second.answer_start, packed.layout.tokens) == (6, 8, 11)


def test_vision_rows_are_shifted_with_their_group() -> None:
    group = toy(4, 1)
    seen = replace(group.prompt, vision_index=torch.tensor([1, 2]))
    packed = pack_row((toy(3, 2), PackedGroup(seen, group.answers)))
    assert packed.vision_index_V.tolist() == [6, 7]


def test_the_empty_row_is_one_prompt_and_one_answer_token() -> None:
    packed = pack_row(())
    assert (packed.empty, packed.layout.tokens, packed.read_R.tolist(), packed.media) == (True, 2, [0], ())


@pytest.mark.parametrize("group", [toy(0, 1, name="bad7"), toy(3, name="bad7"), toy(3, 2, 0, name="bad7")])
def test_groups_without_tokens_are_refused_by_name(group: PackedGroup) -> None:
    with pytest.raises(DataError, match="bad7"):
        pack_row((group,))


def test_cost_is_linear_plus_quadratic() -> None:
    # 6 tokens; pairs: prompt 3*4/2 = 6, answers 2*3 + 2*3/2 = 9 and 1*3 + 1 = 4
    assert cost(toy(3, 2, 1), hidden=1) == 6 + 19 / 6
    assert cost((toy(3, 2, 1), toy(3, 2, 1)), hidden=1) == 2 * cost(toy(3, 2, 1), hidden=1)
    assert cost((), hidden=1) == 0


def test_rows_keep_to_the_budget_hold_every_group_once_and_a_long_group_alone() -> None:
    groups = [toy(p, *a) for p, a in [(10, (2, 3)), (40, (5,)), (3, (1,)), (90, (30,)), (20, (4, 4)), (7, (7,))]]
    rows = make_rows(groups, max_tokens=64, hidden=64)
    assert sorted(id(g) for row in rows for g in row) == sorted(map(id, groups))
    for row in rows:
        assert sum(g.tokens for g in row) <= 64 or len(row) == 1
    assert len(rows) == 3  # 120 alone; 45 + 15 + 4; 28 + 14
    assert [[groups.index(g) for g in row] for row in make_rows(groups, max_tokens=64, hidden=64)] == [
        [groups.index(g) for g in row] for row in rows
    ]
    assert make_rows([], max_tokens=8, hidden=64) == []


def test_rows_come_from_costly_to_cheap() -> None:
    """First fit puts 50 and 9 into one row, 40 and 1 into the other; long prompts pay for their attention."""
    groups = [toy(n - 1, 1) for n in (40, 50, 9, 1 + 1)]
    rows = make_rows(groups, max_tokens=59, hidden=64)
    assert [[g.tokens for g in row] for row in rows] == [[50, 9], [40, 2]]
    alone = make_rows([toy(29, 1), toy(29, 1), toy(49, 1)], max_tokens=60, hidden=4)
    assert [sum(g.tokens for g in row) for row in alone] == [50, 60], "50 x 51 / 2 pairs are more than twice 30 x 31 / 2"


def test_empty_rows_are_appended() -> None:
    assert pad_count([(toy(1, 1),)], count=3)[1:] == [(), ()]


def test_padding_has_an_inverse_and_keeps_the_gradient() -> None:
    values = torch.arange(1.0, 8.0, dtype=torch.float64, requires_grad=True)
    padded, mask = pad_rows(values, (2, 1, 4))
    assert padded.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 7]]
    assert mask.sum(1).tolist() == [2, 1, 4]
    assert unpad_rows(padded, mask).tolist() == values.tolist()
    (padded * torch.arange(12.0).view(3, 4)).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0, 1, 4, 8, 9, 10, 11]
    assert pad_rows(torch.zeros(0), ())[0].shape == (0, 0)
