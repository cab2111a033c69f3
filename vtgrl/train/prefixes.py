"""What the answers of a step begin with: the recipe's curriculum on this rank's prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vtgrl.algo.curriculum.types import CurriculumInputs, CurriculumOutput, Opening, Prefix
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Sample
from vtgrl.model.types import Prompt
from vtgrl.rollout.protocol import Prefixes
from vtgrl.train.session import Session


@dataclass(frozen=True)
class Beginnings:
    """prefixes: for the engine, None when every answer is free. metrics: equal on every rank; empty without a curriculum."""

    prefixes: Prefixes | None = None
    metrics: dict[str, float] = field(default_factory=dict)


class Curriculum:
    """Asks the curriculum once a step. It has no state: what it gives depends on the step, the seed and the prompts alone, so a
    resumed run goes on with the same draws, on any number of ranks."""

    def __init__(self, session: Session) -> None:
        """Looks at all training rows first.

        Raises:
            DataError: a row has captions and no query: its thoughts could not say what is sought. Names the row.
        """
        self.session = session
        self.recipe: GrpoRecipe = session.recipe
        self.active = "openings" in self.recipe.curriculum.entry().needs
        if self.active:
            check_queries(session.train)

    def begin(self, step: int, prompts: Sequence[Prompt]) -> Beginnings:
        """Prefixes of `prompts`, this rank's share of the step (collective)."""
        if not self.active:
            return Beginnings()
        recipe, order = self.recipe, self.session.order
        inputs = CurriculumInputs(
            openings=[self._opening(p) for p in prompts],
            members=recipe.rollout.n,
            seed=recipe.train.seed,
            step=step,
            epoch=order.epoch(step),
            max_tokens=recipe.rollout.sampling.max_tokens,
            encode=self.session.builder.encode,
        )
        output: CurriculumOutput = recipe.curriculum(inputs)
        given = [[prefix.token_ids for prefix in group] for group in output.prefixes]
        sums = self.session.world.sum(_counts(output))
        return Beginnings(given if any(map(any, given)) else None, {"curriculum/p": output.p, **_shares(sums)})

    def _opening(self, prompt: Prompt) -> Opening:
        chat = self.session.builder.chat(prompt)
        if chat.opening is None:
            name = self.recipe.data.prompt.name
            raise ConfigError(f"data.prompt: {name!r} has no form for thoughts that a curriculum begins; use taro, or curriculum=none")
        return Opening(prompt.sample.id, prompt.copy, chat.opening, chat.events)


def check_queries(samples: Sequence[Sample]) -> None:
    """Every row with captions says what is sought in them.

    Raises:
        DataError: naming the first row that does not.
    """
    for sample in samples:
        if sample.captions and not sample.query.strip():
            raise DataError(
                f"row {sample.id}: has captions and no query, so no thought can be made of them; add its query or drop its captions"
            )


def _counts(output: CurriculumOutput) -> dict[str, float]:
    """Of this rank's answers."""
    prefixes: list[Prefix] = [prefix for group in output.prefixes for prefix in group]
    return {
        "answers": float(len(prefixes)),
        "prefixed": float(sum(bool(p.token_ids) for p in prefixes)),
        "lines": float(sum(len(p.lines) for p in prefixes)),
        "tokens": float(sum(len(p.token_ids) for p in prefixes)),
        "budget_hits": float(sum(bool(p.left_out) for p in prefixes)),
    }


def _shares(sums: dict[str, float]) -> dict[str, float]:
    """share: of all answers; captions and tokens: a prefixed answer's; budget_hits: answers that lost a caption to the budget."""
    prefixed = max(sums["prefixed"], 1.0)
    return {
        "curriculum/share": sums["prefixed"] / max(sums["answers"], 1.0),
        "curriculum/captions": sums["lines"] / prefixed,
        "curriculum/tokens": sums["tokens"] / prefixed,
        "curriculum/budget_hits": sums["budget_hits"],
    }
