"""`vtgrl train grpo`: draw G answers a prompt, reward them, move the policy towards the better ones.

Shape legend: N answers (rows) of this rank, T longest answer, R answer tokens of one packed row. Advantages are computed
from the rows of all ranks and cut back to the local ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.log import logger
from vtgrl.core.named_times import thinks_in_times
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Completion, Sample
from vtgrl.model.guard import exactness_check
from vtgrl.reward.compose import score as score_rewards
from vtgrl.reward.types import RewardTable
from vtgrl.rollout.parity import compare
from vtgrl.rollout.records import Record, to_record
from vtgrl.train.annotate import annotate
from vtgrl.train.balance import even_out
from vtgrl.train.clock import Clock
from vtgrl.train.engine_ds import lr_at
from vtgrl.train.loop import StepReport, run_loop
from vtgrl.train.policy_update import PolicyUpdate
from vtgrl.train.prefixes import Curriculum
from vtgrl.train.probes import Probes
from vtgrl.train.reference import Reference
from vtgrl.train.rollouts import Rollouts, collect
from vtgrl.train.session import Session, open_session
from vtgrl.train.update import UpdateResult
from vtgrl.train.validate import Validator, make_engine
from vtgrl.train.world import World


class Grpo:
    """Group-relative policy optimisation (arXiv:2402.03300) and its relatives, as the recipe's `algo` says."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.recipe: GrpoRecipe = session.recipe
        self.curriculum = Curriculum(session)
        engine = self.recipe.rollout.engine
        longest = max(self.recipe.rollout.sampling.max_tokens, self.recipe.validation.max_tokens)
        self.rollout = make_engine(session, engine.name, max_new_tokens=longest, config=engine.config)
        self.probes = Probes(session)
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
        probed = self.probes.run(step, rollouts)
        rollouts = probed.rollouts
        table = score_rewards(rollouts.rows, self.recipe.reward)
        annotated = annotate(self.session, rollouts, table, reference=self.reference, old_logp_NT=probed.old_logp_NT)
        clock.lap("annotate")
        work = PolicyUpdate(self.session, rollouts, annotated)
        results = self._updates(step, work) if self._any_reward(table) else []
        clock.lap("update")
        self.rollout.publish(self.session.loaded.policy, version=step + 1)
        clock.lap("publish")
        metrics = self._metrics(work, table, results) | rollouts.metrics | probed.metrics | annotated.metrics | clock.laps
        skipped = not results or any(r.info.skipped for r in results)
        return StepReport(metrics, skipped=skipped, records=self._records(step, rollouts, table, every=skipped))

    def _draw(self, step: int, samples: Sequence[Sample]) -> Rollouts:
        prompts = self.session.prompts(step, samples)
        settings = self.recipe.rollout
        begun = self.curriculum.begin(step, prompts)
        answers = self.rollout.generate(prompts, n=settings.n, sampling=settings.sampling, seed=step, version=step, prefixes=begun.prefixes)
        evened = even_out(self.session, step, prompts, answers, token_ids=_token_ids, parts=self.recipe.algo.updates)
        return collect(
            evened.prompts,
            evened.answers,
            prefix=f"{step}.{self.session.world.rank}",
            mask_truncated=self.recipe.algo.mask_truncated,
            train_given=self.recipe.algo.prefixed.prefix_weight > 0,
            parts=evened.parts,
            metrics=begun.metrics | evened.metrics,
        )

    def _guard(self, rollouts: Rollouts) -> None:
        """On the first batch in which every rank has a group: does the packed pass equal one-by-one scoring here?"""
        if self.guarded or not all(self.session.world.gather(bool(rollouts.groups))):
            return
        self.guarded = True
        difference = exactness_check(self.session.loaded.policy, rollouts.groups[0])
        logger.info("packed and one-by-one log-probs agree to %.1e", difference)

    def _any_reward(self, table: RewardTable) -> bool:
        """Whether any row of any rank has a reward: without one there is nothing to learn from, and the step is skipped."""
        return any(self.session.world.gather(any(not math.isnan(value) for value in table.total)))

    def _updates(self, step: int, work: PolicyUpdate) -> list[UpdateResult]:
        """`epochs` passes of `updates` optimizer steps each."""
        algo = self.recipe.algo
        each = algo.epochs * algo.updates
        total = self.session.order.total_steps * each
        results = []
        for k in range(each):
            lr = lr_at(self.session.order.position(step) * each + k, optim=self.recipe.optim, total_steps=total)
            result = work.run(part=k % algo.updates, lr=lr)
            if result is not None:
                results.append(result)
        return results

    def _metrics(self, work: PolicyUpdate, table: RewardTable, results: Sequence[UpdateResult]) -> dict[str, float]:
        """Means over all ranks' rows and trained tokens."""
        world, completions = self.session.world, [r.completion for r in work.rollouts.rows]
        out = reward_metrics(table, world) | _update_metrics(results)
        sums = world.sum(
            {
                "rows": float(len(completions)),
                "tokens": float(sum(len(c.token_ids) for c in completions)),
                "finished": float(sum(c.finish == "stop" for c in completions)),
                "free": float(sum(not c.given for c in completions)),
                "timed": float(
                    sum(not r.completion.given and thinks_in_times(r.completion.text, query=r.sample.query) for r in work.rollouts.rows)
                ),
            }
        )
        rows = max(sums["rows"], 1.0)
        out |= {"rows": sums["rows"], "answer/tokens": sums["tokens"] / rows, "answer/finished": sums["finished"] / rows}
        out["answer/timed"] = sums["timed"] / max(sums["free"], 1.0)  # share of the policy's own thoughts that name a time
        return out | self._parity(work, completions) if results else out

    def _parity(self, work: PolicyUpdate, completions: Sequence[Completion]) -> dict[str, float]:
        """Sampler against trainer, over all ranks."""
        world, parity = self.session.world, compare(completions, work.scored())
        mean, tokens = parity["rollout/logp_diff_mean"], parity["rollout/logp_tokens"]
        return {
            "rollout/logp_diff_max": max(world.gather(parity["rollout/logp_diff_max"])),
            "rollout/logp_diff_mean": 0.0,
            **world.mean({"rollout/logp_diff_mean": (mean * tokens, tokens)}),
            "rollout/logp_missing": sum(world.gather(parity["rollout/logp_missing"])),
        }

    def _records(self, step: int, rollouts: Rollouts, table: RewardTable, *, every: bool) -> list[dict[str, Any]]:
        """Rows for samples.jsonl, under the same step number as metrics.jsonl; the `replay` engine reads them.

        `every`: all groups, for the dump of a step without an update. A group with an answer that got no reward is always there.
        """
        out = []
        for g, group in enumerate(rollouts.groups):
            rows = rollouts.rows_of(g)
            total = [table.total[r] for r in rows]
            if not every and g >= self.recipe.log.samples and not any(map(math.isnan, total)):
                continue
            sample = group.prompt.sample
            answers = tuple(rollouts.rows[r].completion for r in rows)
            record = to_record(Record(sample.id, step + 1, answers, group.prompt.input_ids))
            record |= {"query": sample.query, "windows": [list(w) for w in sample.windows]}
            record["rewards"] = {name: [values[r] for r in rows] for name, values in table.per_reward.items()}
            record["total"] = total
            if self.probes.components:
                record["signals"] = [dict(rollouts.rows[r].signals) for r in rows]
            out.append(record)
        return out

    def validate(self, step: int) -> dict[str, float]:
        """Greedy answers on the validation rows."""
        return self.validator.run(step)

    def answers(self, step: int, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Greedy answers on any rows, scored."""
        return self.validator.answers(step, samples)

    def close(self) -> None:
        """Close the rollout engine."""
        self.rollout.close()


def _token_ids(answers: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [answer.token_ids for answer in answers]


def reward_metrics(table: RewardTable, world: World) -> dict[str, float]:
    """Mean of every reward over the rows of all ranks that have it (0: none has), how many have none, and what the rewards log."""
    columns = {"reward/total": table.total} | {f"reward/{name}": values for name, values in table.per_reward.items()}
    good = {name: [v for v in values if not math.isnan(v)] for name, values in columns.items()}
    means = dict.fromkeys(columns, 0.0) | world.mean({name: (math.fsum(v), len(v)) for name, v in good.items()} | table.means)
    return means | world.sum(table.metrics | {"reward/missing": float(len(table.total) - len(good["reward/total"]))})


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


def run_grpo(recipe: GrpoRecipe, *, run_dir: Path | str, resume: str | None = None) -> dict[str, Any]:
    """Reinforcement learning on grounding rewards. Returns the run's summary (see `run_loop`)."""
    session = open_session(recipe, run_dir=Path(run_dir), resume=resume)
    return run_loop(session, Grpo(session), resume=resume)
