"""`vtgrl train sft`: teach the template's answers; only the assistant's tokens have a loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vtgrl.core.errors import DataError
from vtgrl.core.log import logger
from vtgrl.core.schema import SftRecipe
from vtgrl.core.types import Sample
from vtgrl.model.types import PackedGroup, PolicyOutput
from vtgrl.train.balance import Evened, even_out
from vtgrl.train.engine_ds import lr_at
from vtgrl.train.loop import StepReport, run_loop
from vtgrl.train.session import Session, open_session
from vtgrl.train.update import update
from vtgrl.train.validate import Validator

Answer = tuple[tuple[int, ...]]
"""The one answer of a group."""


class Sft:
    """Mean negative log-prob over the supervised tokens of the whole optimizer step (all rows, all ranks)."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.validator = Validator(session, engine=None)

    def restored(self, step: int) -> None:
        """Nothing but the weights has to follow a resume."""

    def step(self, step: int, samples: Sequence[Sample]) -> StepReport:
        """One optimizer step."""
        session, recipe = self.session, self.session.recipe
        evened = self._evened(step, samples)
        groups = [PackedGroup(prompt, answer) for prompt, answer in zip(evened.prompts, evened.answers, strict=True)]
        lengths = [len(g.answers[0]) for g in groups]
        totals = session.world.sum({"tokens": float(sum(lengths)), "rows": float(len(groups))})
        lr = lr_at(session.order.position(step), optim=recipe.optim, total_steps=session.order.total_steps)

        def row_loss(indices: list[int], output: PolicyOutput) -> tuple[torch.Tensor, dict[str, float]]:
            loss = -output.logp_R.sum() / totals["tokens"]
            return loss, {"loss": float(loss.detach())}

        result = update(session.engine, groups, row_loss, lr=lr, max_tokens=recipe.train.tokens_per_micro_batch, temperature=1.0)
        if result is None:
            return StepReport({"rows": 0.0}, skipped=True)
        skipped = result.info.skipped
        metrics = {"loss": result.sums["loss"], "lr": lr, "grad_norm": result.info.grad_norm, **totals, **evened.metrics}
        return StepReport(metrics, skipped=skipped, records=self._records(step, groups) if skipped else [])

    def _records(self, step: int, groups: Sequence[PackedGroup]) -> list[dict[str, Any]]:
        """The rows of a step without an update, for skipped.jsonl."""
        decode = self.session.builder.decode
        rows = [(g.prompt.sample, g.answers[0]) for g in groups]
        return [{"step": step + 1, "id": s.id, "query": s.query, "answer": decode(ids), "token_ids": list(ids)} for s, ids in rows]

    def _evened(self, step: int, samples: Sequence[Sample]) -> Evened[Answer]:
        prompts, answers = [], []
        for prompt in self.session.prompts(step, samples):
            try:
                answers.append((self.session.builder.target_ids(prompt.sample, prompt),))
                prompts.append(prompt)
            except DataError as error:
                logger.warning("left out: %s", error)
                self.session.failed[prompt.sample.id] = str(error)
        return even_out(self.session, step, prompts, answers, token_ids=lambda answer: answer)

    def validate(self, step: int) -> dict[str, float]:
        """Greedy answers on the validation rows."""
        return self.validator.run(step)

    def answers(self, step: int, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Greedy answers on any rows, scored."""
        return self.validator.answers(step, samples)

    def close(self) -> None:
        """Free the validation engine."""
        self.validator.close()


def run_sft(recipe: SftRecipe, *, run_dir: Path | str, resume: str | None = None) -> dict[str, Any]:
    """Supervised fine-tuning. Returns the run's summary (see `run_loop`)."""
    session = open_session(recipe, run_dir=Path(run_dir), resume=resume)
    return run_loop(session, Sft(session), resume=resume)
