"""Draw one answer a query from a rollout engine and score it: in-loop validation and `vtgrl eval vtg --model` alike."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtgrl.core.digest import digest
from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.log import logger
from vtgrl.core.registry import Component
from vtgrl.core.types import Sample
from vtgrl.eval.score import Output, Scorer, make_scorer, score
from vtgrl.eval.store import PredictionStore
from vtgrl.eval.summary import document, summarise
from vtgrl.eval.types import MISSING, EvalResult

if TYPE_CHECKING:
    from vtgrl.core.schema import SamplingConfig
    from vtgrl.model.types import Prompt
    from vtgrl.rollout.protocol import RolloutEngine

__all__ = ["BATCH", "evaluate", "rounds_of", "summarise"]

BATCH = 16
"""Queries a call of the engine."""

METRICS = "metrics.json"

Progress = Callable[[int, int], None]
"""Called with (queries done, queries in all)."""


def rounds_of(total: int, *, ranks: int = 1, batch: int = BATCH) -> int:
    """Engine calls that the rank with most of `total` queries needs; give it to `evaluate` so that all ranks make as many."""
    return math.ceil(math.ceil(total / ranks) / batch)


def evaluate(
    engine: RolloutEngine,
    builder: Any,
    samples: Sequence[Sample],
    *,
    sampling: SamplingConfig,
    seed: int,
    version: int,
    out: Path | None = None,
    parser: str | Component | Scorer = "vtgrl",
    run: str = "",
    batch: int = BATCH,
    rounds: int = 0,
    progress: Progress | None = None,
    header: Mapping[str, Any] | None = None,
) -> EvalResult:
    """Answer and score every sample.

    Args:
        engine: a rollout engine; every call is collective.
        builder: PromptBuilder (`build(sample) -> Prompt`).
        samples: grounding queries with true windows; ids are unique.
        version: optimizer step whose weights the engine must hold.
        out: folder for predictions.jsonl (appended, resumed by id) and metrics.json; None writes nothing.
        run: digest of model, prompt, frames and decoding; rows in `out` of another run are moved aside.
        rounds: at least this many engine calls, the last ones with no prompt: ranks with fewer queries keep step.

        header: more keys for metrics.json.

    A clip that cannot be opened, or a prompt over the limit, is a miss (IoU 0) whose row says why; it costs no other row.

    Raises:
        DataError: two samples share an id, or one has no true window.
        RunError: the engine's weights are not those of `version`.
    """
    check_samples(samples)
    scorer = parser if isinstance(parser, Scorer) else make_scorer(parser)
    store = PredictionStore(out, run=run, keys={s.id: digest([s.id, s.query, s.video]) for s in samples})
    todo = [s for s in samples if s.id not in store.done]
    if len(todo) < len(samples):
        logger.info("resumed: %d of %d answers are there", len(samples) - len(todo), len(samples))
    answers = {s.id: store.done[s.id] for s in samples if s.id in store.done}
    calls = max(rounds, math.ceil(len(todo) / batch))
    for call in range(calls):
        part = todo[call * batch : (call + 1) * batch]
        rows = _answer(engine, builder, part, sampling=sampling, seed=seed, version=version)
        store.add(rows)
        answers |= {row["id"]: row for row in rows}
        if progress is not None:
            progress(len(answers), len(samples))
    return _finish(scorer, samples, answers, store, out, header or {})


def check_samples(samples: Sequence[Sample]) -> None:
    """Every id once, every sample groundable.

    Raises:
        DataError: naming the ids.
    """
    twice = [name for name, count in Counter(s.id for s in samples).items() if count > 1]
    if twice:
        raise DataError(f"{len(twice)} ids occur more than once, first {twice[0]!r}: rows are told apart by id; make them unique")
    bare = [s.id for s in samples if not s.windows]
    if bare:
        raise DataError(f"{len(bare)} samples have no true window, first {bare[0]!r}: validation rows need task vtg and windows")


def _answer(
    engine: RolloutEngine, builder: Any, samples: Sequence[Sample], *, sampling: SamplingConfig, seed: int, version: int
) -> list[dict[str, Any]]:
    prompts: list[Prompt] = []
    rows: dict[str, dict[str, Any]] = {}
    for sample in samples:
        try:
            prompts.append(builder.build(sample))
        except DataError as error:
            logger.warning("%s: no answer: %s", sample.id, error)
            rows[sample.id] = {"id": sample.id, "output_text": None, "finish": None, "tokens": 0, "error": str(error)}
    completions = engine.generate(prompts, n=1, sampling=sampling, seed=seed, version=version)
    for prompt, (completion,) in zip(prompts, completions, strict=True):
        rows[prompt.sample.id] = {
            "id": prompt.sample.id,
            "output_text": completion.text,
            "finish": completion.finish,
            "tokens": len(completion.token_ids),
            "error": None,
            "duration": prompt.duration,
        }
    return [rows[sample.id] for sample in samples]


def _finish(
    scorer: Scorer,
    samples: Sequence[Sample],
    answers: dict[str, dict[str, Any]],
    store: PredictionStore,
    out: Path | None,
    header: Mapping[str, Any],
) -> EvalResult:
    outputs = [Output(a["output_text"], a["finish"] or "stop", a["error"], a.get("duration")) for a in (answers[s.id] for s in samples)]
    scored = score(scorer, samples, outputs)
    rows = [{**row, "tokens": answers[row["id"]]["tokens"]} for row in scored]
    op = scorer.config.threshold_op
    metrics = summarise(rows, threshold_op=op)
    missing = [row for row in rows if row["kind"] == MISSING]
    if missing:
        logger.warning("%d of %d queries have no answer and count as 0; first: %s", len(missing), len(rows), missing[0]["error"])
    store.finish(rows)
    if out is not None:
        own = {"parser": scorer.parser, "threshold_op": op, "policy": scorer.config.policy}
        write_document(out / METRICS, document(rows, threshold_op=op, header={**header, **own}))
    return EvalResult(metrics, tuple(rows))


def write_document(path: Path, value: dict[str, Any]) -> None:
    """A result document as indented JSON, NaN as null, atomically."""
    atomic_write(path, json.dumps(json.loads(to_line(value)), indent=2, ensure_ascii=False) + "\n")
