"""The policy-gradient update on one step's rollouts.

Shape legend: N answers of this rank, n answers of one packed row, T longest answer, t longest answer of the row, R the
row's answer tokens one after the other.
"""

from __future__ import annotations

import torch

from vtgrl.algo.aggregate import row_weights
from vtgrl.algo.objective import objective
from vtgrl.algo.prefixed import as_cloning
from vtgrl.algo.types import LossInputs
from vtgrl.model.packing import pad_rows
from vtgrl.model.types import PolicyOutput
from vtgrl.train.annotate import Annotated, trainer_temperature
from vtgrl.train.rollouts import Rollouts
from vtgrl.train.session import Session
from vtgrl.train.update import UpdateResult, update


class PolicyUpdate:
    """Runs optimizer updates over parts of the step's groups, and keeps the trainer's log-probs for the parity log."""

    def __init__(self, session: Session, rollouts: Rollouts, annotated: Annotated) -> None:
        self.session = session
        self.rollouts = rollouts
        self.annotated = annotated
        prefix_weight = session.recipe.algo.prefixed.prefix_weight
        self.step_weight_NT = torch.where(rollouts.given_NT, prefix_weight, 1.0)
        old = annotated.old_logp_NT
        self.logp_NT = torch.zeros(rollouts.mask_NT.shape) if old is None else old
        self.keep = old is None

    def run(self, *, part: int, lr: float) -> UpdateResult | None:
        """One optimizer step on the groups of `part` (collective)."""
        chosen = [g for g, its_part in enumerate(self.rollouts.parts) if its_part == part]
        weight_N = self._weights(chosen)

        def row_loss(indices: list[int], output: PolicyOutput) -> tuple[torch.Tensor, dict[str, float]]:
            rows = [row for i in indices for row in self.rollouts.rows_of(chosen[i])]
            return self._row(rows, output, weight_N)

        return update(
            self.session.engine,
            [self.rollouts.groups[i] for i in chosen],
            row_loss,
            lr=lr,
            max_tokens=self.session.recipe.train.tokens_per_micro_batch,
            temperature=trainer_temperature(self.session.recipe),
            entropy=True,
        )

    def scored(self) -> list[torch.Tensor]:
        """The trainer's log-probs [R] of every answer, under the weights that drew it."""
        return [row[:length] for row, length in zip(self.logp_NT, self.rollouts.lengths, strict=True)]

    def _weights(self, chosen: list[int]) -> torch.Tensor:
        """weight_N of the local rows, from the trained lengths of all ranks' rows in this update (collective)."""
        rows = [row for g in chosen for row in self.rollouts.rows_of(g)]
        lengths = (self.annotated.mask_NT * self.step_weight_NT).sum(1, dtype=torch.float64)[rows].tolist()
        parts = self.session.world.gather(lengths)
        all_N = torch.tensor([n for part in parts for n in part], dtype=torch.float64)
        recipe = self.session.recipe
        weights = row_weights(recipe.algo.aggregate, all_N, max_tokens=recipe.rollout.sampling.max_tokens)
        begin = sum(map(len, parts[: self.session.world.rank]))
        weight_N = torch.zeros(len(self.rollouts.rows), dtype=weights.dtype)
        weight_N[rows] = weights[begin : begin + len(rows)]
        return weight_N

    def _row(self, rows: list[int], output: PolicyOutput, weight_N: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
        lengths = [self.rollouts.lengths[row] for row in rows]
        logp_nt, _ = pad_rows(output.logp_R, lengths)
        device, width = logp_nt.device, logp_nt.shape[1]

        def cut(values_NT: torch.Tensor) -> torch.Tensor:
            return values_NT[rows, :width].to(device)

        if self.keep:
            self.logp_NT[rows, :width] = logp_nt.detach().cpu()
        found, ref = self.annotated, self.annotated.ref_logp_NT
        inputs = LossInputs(
            logp_NT=logp_nt,
            old_logp_NT=logp_nt.detach() if found.old_logp_NT is None else cut(found.old_logp_NT),
            adv_NT=cut(found.adv_NT).to(logp_nt.dtype),
            mask_NT=cut(found.mask_NT),
            ref_logp_NT=None if ref is None else cut(ref),
            entropy_NT=None if output.entropy_R is None else pad_rows(output.entropy_R, lengths)[0],
            weight_NT=cut(self.step_weight_NT),
        )
        inputs = as_cloning(inputs, self.rollouts.prefixed_N[rows].to(device))
        return objective(inputs, algo=self.session.recipe.algo, weight_N=weight_N[rows].to(device))
