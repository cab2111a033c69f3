"""Rows that hold whole groups: `[prompt ; answer_1 ; ... ; answer_G]`, several groups a row, nothing padded.

The prompt attends causally to itself, an answer to its prompt and to itself; groups do not see each other. So a prompt
with its video runs once, not once per answer. No I/O, no model, no distributed code.

Shape legend: T packed tokens of a row, P prompt tokens, R answer tokens (of all answers, one after the other), V vision
tokens, N answers, n answers of one length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import torch

from vtgrl.core.errors import DataError
from vtgrl.model.slices import Variant
from vtgrl.model.types import Medium, PackedGroup, PackedRow, Prompt


@dataclass(frozen=True, eq=False)
class Segment:
    """Where one group lies in its row: prompt rows [start, start + prompt), then the answers.

    `same_length`: per distinct answer length, int64 [n, length] row indices of the answers of that length: they run as one
    batched attention call.
    """

    start: int
    prompt: int
    answers: tuple[int, ...]
    same_length: tuple[torch.Tensor, ...]

    @property
    def answer_start(self) -> int:
        """First row of the first answer."""
        return self.start + self.prompt

    @property
    def end(self) -> int:
        """One past the last row of the group."""
        return self.answer_start + sum(self.answers)


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Who may see whom in a row of `tokens` rows: all that attention has to know."""

    segments: tuple[Segment, ...]

    @property
    def tokens(self) -> int:
        """T."""
        return self.segments[-1].end


@dataclass(frozen=True, eq=False)
class PackedInputs:
    """A row as tensors.

    ids_T, positions_3T: int64. read_R: rows of the hidden state whose logits predict the answer tokens `target_R` (the last
    prompt row predicts an answer's first token, then its rows 0 .. R-2 the others; the answer's last row is never read).
    vision_index_V: rows that vision tokens replace; media: the unique media of the row, in order of first use; media_slots:
    for each run of rows in vision_index_V, which of `media` fills it. `empty`: stands for the row `()`.
    """

    layout: RowLayout
    ids_T: torch.Tensor
    positions_3T: torch.Tensor
    read_R: torch.Tensor
    target_R: torch.Tensor
    vision_index_V: torch.Tensor
    media: tuple[Medium | Variant, ...]
    media_slots: tuple[int, ...]
    empty: bool = False


def pack_row(row: PackedRow, *, device: torch.device | str = "cpu") -> PackedInputs:
    """Lay a row out. The row `()` becomes one prompt token and one answer token, marked `empty`.

    Raises:
        DataError: a prompt or an answer without tokens, or a group without answers (names the sample).
    """
    for group in row:
        _check(group)
    starts = list(accumulate((g.tokens for g in row), initial=0))
    media = {m.id: m for g in row for m in g.prompt.media}
    slot = {name: i for i, name in enumerate(media)}
    shapes = [(len(g.prompt.input_ids), tuple(map(len, g.answers))) for g in row] or [(1, (1,))]
    layout = RowLayout(tuple(_segment(s, p, a, device) for s, (p, a) in zip(starts, shapes, strict=False)))
    ids = [t for g in row for part in (g.prompt.input_ids, *g.answers) for t in part] or [0, 0]
    positions = [p for g in row for p in _positions(g)] or [torch.arange(2).expand(3, 2)]
    vision = [g.prompt.vision_index + s for g, s in zip(row, starts, strict=False)]
    return PackedInputs(
        layout=layout,
        ids_T=torch.tensor(ids, device=device),
        positions_3T=torch.cat(positions, dim=1).to(device),
        read_R=torch.tensor([r for s in layout.segments for r in _read_rows(s)], device=device),
        target_R=torch.tensor([t for g in row for a in g.answers for t in a] or [0], device=device),
        vision_index_V=torch.cat([torch.zeros(0, dtype=torch.int64), *vision]).to(device),
        media=tuple(media.values()),
        media_slots=tuple(slot[m.id] for g in row for m in g.prompt.media),
        empty=not row,
    )


def _check(group: PackedGroup) -> None:
    name = group.prompt.sample.id
    if not group.prompt.input_ids:
        raise DataError(f"sample {name!r}: the prompt has no tokens")
    if not group.answers or not all(group.answers):
        raise DataError(f"sample {name!r}: a group needs at least one answer, and an answer at least one token (the end token)")


def _segment(start: int, prompt: int, answers: tuple[int, ...], device: torch.device | str) -> Segment:
    offsets = list(accumulate(answers, initial=start + prompt))
    same = []
    for length in sorted(set(answers)):
        first = [o for o, n in zip(offsets, answers, strict=False) if n == length]
        same.append(torch.tensor(first, device=device)[:, None] + torch.arange(length, device=device))
    return Segment(start, prompt, answers, tuple(same))


def _positions(group: PackedGroup) -> list[torch.Tensor]:
    """[3, P] of the prompt and [3, R] of every answer, all answers starting at the same place."""
    prompt: Prompt = group.prompt
    answers = [torch.arange(len(a)).expand(3, -1) + prompt.next_position for a in group.answers]
    return [prompt.positions_3P.cpu(), *answers]


def _read_rows(segment: Segment) -> list[int]:
    rows: list[int] = []
    for length, start in zip(segment.answers, accumulate(segment.answers, initial=segment.answer_start), strict=False):
        rows += [segment.answer_start - 1, *range(start, start + length - 1)]
    return rows


def answer_lengths(row: PackedRow) -> tuple[int, ...]:
    """Tokens of each answer of the row, in the order in which `PolicyOutput.logp_R` holds them."""
    return tuple(len(a) for g in row for a in g.answers)


def cost(row: PackedRow | PackedGroup, *, hidden: int) -> float:
    """Work of a forward pass in units of one token's linear layers: tokens + attention pairs / (6 x hidden).

    `hidden` is the text model's width D: a decoder layer costs about 24 D^2 FLOPs a token in its linear layers and 4 D a
    (query, key) pair in attention.
    """
    groups = (row,) if isinstance(row, PackedGroup) else row
    return float(sum(g.tokens + _pairs(g) / (6 * hidden) for g in groups))


def _pairs(group: PackedGroup) -> float:
    prompt = len(group.prompt.input_ids)
    return prompt * (prompt + 1) / 2 + sum(len(a) * prompt + len(a) * (len(a) + 1) / 2 for a in group.answers)


def make_rows(groups: Sequence[PackedGroup], *, max_tokens: int, hidden: int) -> list[PackedRow]:
    """Group -> rows of at most `max_tokens` packed tokens: first fit, the costliest group first.

    A group longer than `max_tokens` gets a row of its own. Deterministic; in a row, groups keep their given order. Rows come from
    costly to cheap, so that ranks do like work at the same time.
    """
    order = sorted(range(len(groups)), key=lambda i: (-cost(groups[i], hidden=hidden), i))
    bins: list[list[int]] = []
    room: list[int] = []
    for i in order:
        size = groups[i].tokens
        fit = next((b for b, left in enumerate(room) if left >= size), None)
        if fit is None:
            bins.append([])
            room.append(max_tokens)
            fit = len(bins) - 1
        bins[fit].append(i)
        room[fit] -= size
    rows: list[PackedRow] = [tuple(groups[i] for i in sorted(b)) for b in bins]
    return sorted(rows, key=lambda row: -cost(row, hidden=hidden))


def pad_count(rows: Iterable[PackedRow], *, count: int) -> list[PackedRow]:
    """Append empty rows until there are `count`."""
    rows = list(rows)
    return rows + [cast(PackedRow, ())] * (count - len(rows))


def pad_rows(values_R: torch.Tensor, lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of all answers, one after the other -> ([N, T] padded right with 0, bool mask [N, T]). Keeps the gradient."""
    lengths_N = torch.tensor(lengths, dtype=torch.int64, device=values_R.device)
    width = max(lengths, default=0)
    mask_NT = torch.arange(width, device=values_R.device) < lengths_N[:, None]
    # masked_scatter, not index assignment: its gradient is one gather
    padded_NT = values_R.new_zeros(len(lengths), width).masked_scatter(mask_NT, values_R)
    return padded_NT, mask_NT


def unpad_rows(values_NT: torch.Tensor, mask_NT: torch.Tensor) -> torch.Tensor:
    """Inverse of `pad_rows`: [N, T] and its mask -> [R]."""
    return values_NT[mask_NT]
