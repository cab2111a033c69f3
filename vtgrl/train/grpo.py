"""`vtgrl train grpo`: draw G answers a prompt, reward them, move the policy towards the better ones.

Shape legend: N answers (rows) of this rank, T longest answer, R answer tokens of one packed row. Advantages are computed
from the rows of all ranks and cut back to the local ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Sample
from vtgrl.model.guard import exactness_check
from vtgrl.model.types import PackedGroup
from vtgrl.reward.compose import RewardTable, score_rows
from vtgrl.rollout.parity import compare
from vtgrl.rollout.records import Record, to_record
from vtgrl.train.annotate import Annotated, annotate
from vtgrl.train.clock import Clock
from vtgrl.train.engine_ds import lr_at
from vtgrl.train.loop import StepReport, run_dir_of, run_loop
from vtgrl.train.policy_update import PolicyUpdate
from vtgrl.train.reference import Reference
from vtgrl.train.rollouts import Rollouts, collect
from vtgrl.train.session import Session, open_session
from vtgrl.train.update import UpdateResult
from vtgrl.train.validate import Validator, make_engine


class Grpo:
    """Group-relative policy optimisation (arXiv:2402.03300) and its relatives, as the recipe's `algo` says."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.recipe: GrpoRecipe = session.recipe
        engine = self.recipe.rollout.engine
        longest = max(self.recipe.rollout.sampling.max_tokens, self.recipe.validation.max_tokens)
        self.rollout = make_engine(session, engine.name, max_new_tokens=longest, config=engine.config)
        self.reference = Reference(session) if self.recipe.algo.kl.coef > 0 else None
        self.validator = Validator(session, engine=self.rollout)
        self.guarded = False

    def restored(self, step: int) -> None:
        """Give the engine the weights of `step`."""
        self.rollout.publish(self.session.loaded.policy, version=step)

    def step(self, step: int, samples: Sequence[Sample]) -> StepReport:
        """Rollout, score, annotate, update, publish."""
        clock = Clock()
        rollouts = self._draw(step, samples)
        clock.lap("rollout")
        self._guard(rollouts)
        table = score_rows(rollouts.rows, self.recipe.reward)
        annotated = annotate(self.session, rollouts, table, reference=self.reference)
        clock.lap("annotate")
        work = PolicyUpdate(self.session, rollouts, annotated)
        results = self._updates(step, work)
        clock.lap("update")
        self.rollout.publish(self.session.loaded.policy, version=step + 1)
        clock.lap("publish")
        metrics = self._metrics(work, table, results) | annotated.metrics | clock.laps
        skipped = not results or any(r.info.skipped for r in results)
        return StepReport(metrics, skipped=skipped, records=self._records(step, rollouts, table))

    def _draw(self, step: int, samples: Sequence[Sample]) -> Rollouts:
        prompts = self.session.prompts(samples)
        settings = self.recipe.rollout
        answers = self.rollout.generate(prompts, n=settings.n, sampling=settings.sampling, seed=step, version=step)
        prefix = f"{step}.{self.session.world.rank}"
        return collect(prompts, answers, prefix=prefix, mask_truncated=self.recipe.algo.mask_truncated)

    def _guard(self, rollouts: Rollouts) -> None:
        """On the first batch: does the packed pass equal one-by-one scoring? Not where weights are sharded over ranks:
        there the ranks would have to score the same group together."""
        sharded = self.session.engine.stage == 3 and self.session.world.size > 1
        if self.guarded or sharded or not rollouts.groups:
            return
        self.guarded = True
        group = rollouts.groups[0]
        exactness_check(self.session.loaded.policy, PackedGroup(group.prompt, group.answers[:2]))

    def _updates(self, step: int, work: PolicyUpdate) -> list[UpdateResult]:
        """`epochs` passes of `updates` optimizer steps each."""
        algo = self.recipe.algo
        each = algo.epochs * algo.updates
        total = self.session.order.total_steps * each
        results = []
        for k in range(each):
            lr = lr_at(step * each + k, optim=self.recipe.optim, total_steps=total)
            result = work.run(part=k % algo.updates, parts=algo.updates, lr=lr)
            if result is not None:
                results.append(result)
        return results

    def _metrics(self, work: PolicyUpdate, table: RewardTable, results: Sequence[UpdateResult]) -> dict[str, float]:
        """Means over all ranks' rows and trained tokens."""
        world, rollouts = self.session.world, work.rollouts
        parity = compare([r.completion for r in rollouts.rows], work.scored())
        worst = world.gather(parity["rollout/logp_diff_max"])
        lengths, finished = rollouts.lengths, [r.completion.finish == "stop" for r in rollouts.rows]
        rewards = {f"reward/{name}": sum(v or 0.0 for v in values) for name, values in table.per_reward.items()}
        valid = [t for t in table.total if t == t]
        sums = world.sum(
            {
                "rows": float(len(lengths)),
                "valid": float(len(valid)),
                "reward": sum(valid),
                "answer_tokens": float(sum(lengths)),
                "finished": float(sum(finished)),
                **rewards,
            }
        )
        rows = max(sums["rows"], 1.0)
        out = {"rows": sums["rows"], "reward/mean": sums["reward"] / max(sums["valid"], 1.0), "reward/missing": sums["rows"] - sums["valid"]}
        out |= {name: sums[name] / rows for name in rewards}
        out |= {"answer/tokens": sums["answer_tokens"] / rows, "answer/finished": sums["finished"] / rows}
        out |= {"rollout/logp_diff_max": max(worst), "rollout/logp_diff_mean": parity["rollout/logp_diff_mean"]}
        return out | _update_metrics(results)

    def _records(self, step: int, rollouts: Rollouts, table: RewardTable) -> list[dict[str, Any]]:
        """Rows for samples.jsonl; the `replay` engine reads them."""
        out = []
        for g, group in enumerate(rollouts.groups[: self.recipe.log.samples]):
            rows = rollouts.rows_of(g)
            sample = group.prompt.sample
            answers = tuple(rollouts.rows[r].completion for r in rows)
            record = to_record(Record(sample.id, step, answers, group.prompt.input_ids))
            record |= {"query": sample.query, "windows": [list(w) for w in sample.windows]}
            record["rewards"] = {name: [values[r] for r in rows] for name, values in table.per_reward.items()}
            out.append(record)
        return out

    def validate(self, step: int) -> dict[str, float]:
        """Greedy answers on the validation rows."""
        return self.validator.run(step)

    def close(self) -> None:
        """Close the rollout engine."""
        self.rollout.close()


def _update_metrics(results: Sequence[UpdateResult]) -> dict[str, float]:
    """Means over the step's optimizer updates; per-token sums become means over trained tokens."""
    out: dict[str, float] = {}
    for result in results:
        tokens = max(result.sums.get("tokens", 0.0), 1.0)
        values = {k: v if k == "loss" else v / tokens for k, v in result.sums.items() if k != "tokens"}
        values |= {"grad_norm": result.info.grad_norm, "lr": result.info.lr, "trained_tokens": result.sums.get("tokens", 0.0)}
        for key, value in values.items():
            out[key] = out.get(key, 0.0) + value / len(results)
    return out


def run_grpo(recipe: GrpoRecipe, *, run_dir: Path | str | None = None, resume: str | None = None) -> dict[str, Any]:
    """Reinforcement learning on grounding rewards. Returns the run's summary (see `run_loop`)."""
    torch.manual_seed(recipe.train.seed)
    session = open_session(recipe, run_dir=run_dir_of(run_dir, "grpo"), resume=resume)
    return run_loop(session, Grpo(session), resume=resume)


__all__ = ["Annotated", "Grpo", "run_grpo"]
