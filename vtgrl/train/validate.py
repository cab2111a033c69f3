"""In-loop validation: the same code as `vtgrl eval vtg`, on this run's policy, rows shared over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtgrl.core import registry
from vtgrl.core.types import Sample
from vtgrl.eval.run import evaluate, rounds_of, summarise
from vtgrl.rollout.protocol import EngineContext, RolloutEngine
from vtgrl.train.session import Session


def make_engine(session: Session, name: str, *, max_new_tokens: int, config: object | None = None) -> RolloutEngine:
    """A rollout engine for this session's policy."""
    entry = registry.get("engine", name)
    context = EngineContext(
        model_path=session.recipe.model.path,
        policy=session.loaded.policy,
        builder=session.builder,
        dtype=session.recipe.model.dtype,
        max_model_len=session.recipe.data.max_prompt_tokens + max_new_tokens,
        rank=session.world.rank,
        world_size=session.world.size,
        seed=session.recipe.train.seed,
    )
    return entry.fn(context, config=config if config is not None else entry.config())


class Validator:
    """In-loop validation, and greedy answers on any other rows.

    Draws with the run's own engine (GRPO) or the `hf` one (SFT), made when first used.
    """

    def __init__(self, session: Session, *, engine: RolloutEngine | None) -> None:
        self.session = session
        self.engine = engine
        self.owns_engine = engine is None

    def run(self, step: int) -> dict[str, float]:
        """Metrics under `val/` (collective)."""
        return {f"val/{key}": value for key, value in summarise(self.answers(step, self.session.val)).items()}

    def answers(self, step: int, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """One scored row a sample (see `vtgrl.eval.types.EvalResult`), of all ranks, rank by rank (collective)."""
        session = self.session
        if self.engine is None:
            self.engine = make_engine(session, "hf", max_new_tokens=session.recipe.validation.max_tokens)
        if self.owns_engine:
            self.engine.publish(session.loaded.policy, version=step)
        result = evaluate(
            self.engine,
            session.builder,
            session.world.shard(list(samples)),
            sampling=session.recipe.validation,
            seed=session.recipe.train.seed,
            version=step,
            rounds=rounds_of(len(samples), ranks=session.world.size),
        )
        return [row for part in session.world.gather(list(result.rows)) for row in part]

    def close(self) -> None:
        """Close the engine if it is ours."""
        if self.owns_engine and self.engine is not None:
            self.engine.close()
