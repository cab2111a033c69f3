"""The answers of one step on this rank, as groups for the packer and as padded row tensors for the maths.

Shape legend: N answers of this rank (rows), T longest answer, R answer tokens of one packed row. Row order is group by
group; a group knows its rows by index, and rows of all ranks are matched by group id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from vtgrl.core.types import Completion
from vtgrl.model.types import PackedGroup, Prompt
from vtgrl.reward.types import RewardRow


@dataclass(frozen=True, eq=False)
class Rollouts:
    """answer_NT: bool, steps of the answer. mask_NT: bool, those of them that train. parts: which of the step's updates each group
    belongs to. metrics: of the draw, equal on every rank."""

    groups: list[PackedGroup]
    rows: list[RewardRow]
    answer_NT: torch.Tensor
    mask_NT: torch.Tensor
    parts: list[int]
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def prefixed_N(self) -> torch.Tensor:
        """bool: answers whose first tokens were given."""
        return self._given_N > 0

    @property
    def given_NT(self) -> torch.Tensor:
        """bool: steps that were given."""
        return torch.arange(self.mask_NT.shape[1]) < self._given_N[:, None]

    @property
    def _given_N(self) -> torch.Tensor:
        return torch.tensor([r.completion.given for r in self.rows], dtype=torch.int64)

    @property
    def lengths(self) -> list[int]:
        """Tokens of every answer, trained or not."""
        return [len(r.completion.token_ids) for r in self.rows]

    def rows_of(self, group: int) -> list[int]:
        """Row indices of a group."""
        return list(range(self._begins[group], self._begins[group + 1]))

    @property
    def _begins(self) -> list[int]:
        begins = [0]
        for group in self.groups:
            begins.append(begins[-1] + len(group.answers))
        return begins

    def pad(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """One [R] tensor a group -> [N, T], zeros on the right."""
        out = torch.zeros(self.mask_NT.shape, dtype=torch.float32)
        flat = [piece for g, v in zip(self.groups, values, strict=True) for piece in v.split([len(a) for a in g.answers])]
        for row, piece in enumerate(flat):
            out[row, : len(piece)] = piece.detach().cpu()
        return out


def collect(
    prompts: Sequence[Prompt],
    completions: Sequence[Sequence[Completion]],
    *,
    prefix: str,
    mask_truncated: bool,
    train_given: bool = True,
    parts: Sequence[int] | None = None,
    metrics: dict[str, float] | None = None,
) -> Rollouts:
    """Prompts and their answers -> rows; `prefix` makes group ids unique over ranks (one sample may come twice in a batch).

    `parts`: see `Rollouts`; None: one update takes all. With `mask_truncated`, an answer cut by the token limit trains nothing;
    without `train_given`, given tokens train nothing.
    """
    groups = [PackedGroup(p, tuple(c.token_ids for c in answers)) for p, answers in zip(prompts, completions, strict=True)]
    rows = [
        RewardRow(p.sample, c, group=f"{prefix}.{i}", duration=p.duration)
        for i, (p, answers) in enumerate(zip(prompts, completions, strict=True))
        for c in answers
    ]
    lengths_N = torch.tensor([len(r.completion.token_ids) for r in rows], dtype=torch.int64)
    answer_NT = torch.arange(int(lengths_N.max()) if rows else 0) < lengths_N[:, None]
    trains_N = torch.tensor([not (mask_truncated and r.completion.finish == "length") for r in rows], dtype=torch.bool)
    in_part = [0] * len(groups) if parts is None else list(parts)
    found = Rollouts(groups, rows, answer_NT, answer_NT & trains_N[:, None], in_part, metrics or {})
    return found if train_given else replace(found, mask_NT=found.mask_NT & ~found.given_NT)
