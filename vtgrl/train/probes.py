"""The probes that the recipe's rewards need: the same answers scored once more, under a clip with other pixels.

All probes of a step share one packed pass: a group costs one forward of its prompt and answers for each changed clip, and the
vision tower sees only what changed. Every rank makes the same number of passes.

Shape legend: N answers of this rank (rows), T longest answer, R answer tokens of one group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from vtgrl.core.probes import ProbeConfig, needed_probes, signal
from vtgrl.core.reasoning import reasoning_tokens
from vtgrl.core.registry import Component
from vtgrl.core.seeds import derive_seed
from vtgrl.core.types import Completion
from vtgrl.model.probes.types import Probed
from vtgrl.model.types import PackedGroup
from vtgrl.reward.types import RewardRow
from vtgrl.train.annotate import trainer_temperature
from vtgrl.train.rollouts import Rollouts
from vtgrl.train.session import Session
from vtgrl.train.update import score


@dataclass(frozen=True, eq=False)
class ProbedRollouts:
    """rollouts: with each row's numbers in its `signals`. old_logp_NT: the trainer's log-probs under the true clip, if a probe
    had them scored."""

    rollouts: Rollouts
    old_logp_NT: torch.Tensor | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ProbePass:
    """What one probe found. probed: one a group. true_NT, changed_NT: log-probs under the true clip (NaN: the sampler gave
    none) and under the changed one (mean over changed clips; NaN in the rows of a skipped group), float64."""

    component: Component
    probed: list[Probed]
    true_NT: torch.Tensor
    changed_NT: torch.Tensor


class Probes:
    """Runs them. `components` is empty when no reward needs one, and `run` then does nothing."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.components = needed_probes(session.recipe.reward, session.recipe.probes)

    def run(self, step: int, rollouts: Rollouts) -> ProbedRollouts:
        """Score the answers of this step under changed clips (collective)."""
        if not self.components:
            return ProbedRollouts(rollouts)
        trainer = any(_config(c).baseline == "trainer" for c in self.components)
        old_NT = rollouts.pad(self._score(rollouts.groups)) if trainer else None
        rows, metrics = rollouts.rows, {}
        for found in self._passes(step, rollouts, old_NT):
            rows, tally = self._signals(rollouts, rows, found)
            metrics |= self._metrics(found, tally)
        return ProbedRollouts(replace(rollouts, rows=rows), old_NT, metrics)

    def _score(self, groups: Sequence[PackedGroup]) -> list[torch.Tensor]:
        recipe = self.session.recipe
        limit = recipe.train.tokens_per_micro_batch
        return score(self.session.engine, groups, max_tokens=limit, temperature=trainer_temperature(recipe))

    def _passes(self, step: int, rollouts: Rollouts, old_NT: torch.Tensor | None) -> list[ProbePass]:
        groups = rollouts.groups
        probed = [[self._probe(c, step, g) for g in groups] for c in self.components]
        changed = [PackedGroup(p, g.answers) for each in probed for g, found in zip(groups, each, strict=True) for p in found.prompts]
        logp = iter(self._score(changed))
        return [self._pass(c, each, rollouts, old_NT, logp) for c, each in zip(self.components, probed, strict=True)]

    def _probe(self, component: Component, step: int, group: PackedGroup) -> Probed:
        """One change a prompt: the same for all its answers, on every rank and after a resume."""
        seed = derive_seed(self.session.recipe.train.seed, component.name, step, group.prompt.sample.id)
        found: Probed = component(group.prompt, seed=seed)
        return found

    def _pass(
        self, component: Component, probed: list[Probed], rollouts: Rollouts, old_NT: torch.Tensor | None, logp: Iterator[torch.Tensor]
    ) -> ProbePass:
        """Takes as many of `logp` as the probe has changed prompts."""
        parts = []
        for group, found in zip(rollouts.groups, probed, strict=True):
            each = [next(logp) for _ in found.prompts]
            parts.append(torch.stack(each).mean(0) if each else torch.full((sum(map(len, group.answers)),), math.nan))
        true_NT = old_NT if old_NT is not None and _config(component).baseline == "trainer" else sampled(rollouts)
        return ProbePass(component, probed, true_NT.double(), rollouts.pad(parts).double())

    def _signals(self, rollouts: Rollouts, rows: list[RewardRow], found: ProbePass) -> tuple[list[RewardRow], Tally]:
        """The rows with this probe's number, where they have one."""
        tally, out = Tally(), list(rows)
        for g, probed in enumerate(found.probed):
            if probed.skipped:
                tally.counts["skipped"] += 1
                tally.counts[f"skipped/{probed.skipped}"] += 1
                continue
            tally.add("coverage", probed.coverage)
            for r in rollouts.rows_of(g):
                d = self._mean(found, r, rows[r].completion, tally)
                if d is not None:
                    out[r] = replace(rows[r], signals={**rows[r].signals, signal(found.component.name): d})
        return out, tally

    def _mean(self, found: ProbePass, row: int, completion: Completion, tally: Tally) -> float | None:
        """d of a row: mean over the chosen tokens of log p(true clip) - log p(changed clip); None when there is none to take."""
        tokens = self._tokens(completion, _config(found.component).tokens)
        if not tokens:
            tally.counts["no_tokens"] += 1
            return None
        chosen = slice(tokens.start, tokens.stop)
        true_T = found.true_NT[row, chosen]
        if bool(true_T.isnan().any()):
            tally.counts["no_baseline"] += 1
            return None
        d = float((true_T - found.changed_NT[row, chosen]).mean())
        tally.add("tokens", len(tokens))
        if math.isfinite(d):
            tally.add("d", d)
        return d

    def _tokens(self, completion: Completion, scope: str) -> range:
        if scope == "all":
            return range(len(completion.token_ids))
        found = reasoning_tokens(completion.token_ids, decode=self._decode, ended=completion.finish == "stop")
        first = completion.given if scope == "own_reasoning" else 0
        return range(max(found.start, first), max(found.stop, first))

    def _decode(self, ids: Sequence[int]) -> str:
        tokenizer = self.session.builder.tokenizer
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _metrics(self, found: ProbePass, tally: Tally) -> dict[str, float]:
        """d, coverage and tokens as means, what was left out as counts, over all ranks (collective)."""
        name = found.component.name.rpartition(":")[2]
        world = self.session.world
        counts = {"skipped": 0, "no_tokens": 0, "no_baseline": 0} | tally.counts
        out = world.mean(tally.means) | world.sum({key: float(count) for key, count in counts.items()})
        return {f"probe/{name}/{key}": value for key, value in out.items()}


@dataclass
class Tally:
    """Of one probe's pass on this rank: `means` are (sum, count)."""

    counts: Counter[str] = field(default_factory=Counter)
    means: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, key: str, value: float) -> None:
        """One more value of a mean."""
        total, count = self.means.get(key, (0.0, 0))
        self.means[key] = total + value, count + 1


def sampled(rollouts: Rollouts) -> torch.Tensor:
    """The sampler's log-probs [N, T], zeros on the right; NaN where it gave none."""
    out_NT = torch.zeros(rollouts.mask_NT.shape, dtype=torch.float64)
    for r, row in enumerate(rollouts.rows):
        out_NT[r, : len(row.completion.logprobs)] = torch.tensor(row.completion.logprobs, dtype=torch.float64)
    return out_NT


def _config(component: Component) -> ProbeConfig:
    """A probe without settings of its own is compared as the defaults say."""
    return component.config if isinstance(component.config, ProbeConfig) else ProbeConfig()
