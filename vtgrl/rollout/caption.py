"""Captions from a local model through a rollout engine: greedy first, then drawn, until an answer is valid (`vtgrl data caption`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from vtgrl.core.digest import digest, weights_mark
from vtgrl.core.errors import DataError
from vtgrl.core.registry import Component, NoConfig
from vtgrl.core.schema import Dtype, SamplingConfig, VideoConfig
from vtgrl.core.types import Completion, Sample
from vtgrl.data.caption.parse import Refused, parse_events
from vtgrl.data.caption.types import INVALID, Job, Outcome, Record, Usage
from vtgrl.data.prompts.dense_captions import TEXT
from vtgrl.rollout.protocol import RolloutEngine

if TYPE_CHECKING:
    from vtgrl.model.types import Prompt

TEMPLATE = Component("prompt", "dense_captions", NoConfig())
AGAIN_TEMPERATURE = 0.7
"""Of all answers after the first: the same greedy answer again would be refused again."""


@dataclass(frozen=True)
class LocalConfig:
    """A model in this process. `model`: folder or hub name. `batch`: clips a call. `tries`: answers to one clip."""

    model: str
    engine: Literal["hf", "vllm"]
    dtype: Dtype | None = None
    batch: int = 8
    tries: int = 3
    max_tokens: int = 4096
    max_prompt_tokens: int = 16384
    seed: int = 0


class Builder(Protocol):
    """What is needed of a PromptBuilder."""

    def build(self, sample: Sample) -> Prompt:
        """See PromptBuilder."""

    def close(self) -> None:
        """See PromptBuilder."""


def local_mark(config: LocalConfig) -> str:
    """Digest of weights and prompt; the engine does not matter, its answers may differ as those of two draws."""
    return digest(["local", weights_mark(config.model), TEXT])


def open_local(config: LocalConfig, *, video: VideoConfig) -> LocalCaptioner:
    """Load the model.

    Raises:
        ConfigError: it cannot be loaded, or sees no video.
        EnvironmentMissing: the engine is not installed.
    """
    from vtgrl.model.load import load_parts  # torch is slow to import
    from vtgrl.rollout.standalone import choose_dtype, open_engine

    sampling = SamplingConfig(temperature=0.0, max_tokens=config.max_tokens)
    parts = load_parts(config.model)
    most = min(config.max_prompt_tokens, parts.config.get_text_config().max_position_embeddings - 1)  # room for an answer
    engine, builder = open_engine(
        parts, engine=config.engine, dtype=choose_dtype(config.dtype), template=TEMPLATE, video=video,
        max_prompt_tokens=most, sampling=sampling, seed=config.seed,
    )  # fmt: skip
    return LocalCaptioner(engine, builder, config, sampling=sampling)


class LocalCaptioner:
    """Captions from an engine. See Captioner."""

    def __init__(self, engine: RolloutEngine, builder: Builder, config: LocalConfig, *, sampling: SamplingConfig) -> None:
        self._engine, self._builder, self._config, self._sampling = engine, builder, config, sampling
        self.retried: Counter[str] = Counter()

    def ask(self, jobs: Sequence[Job], record: Record) -> None:
        """See Captioner. Closes the engine."""
        try:
            for first in range(0, len(jobs), self._config.batch):
                self._batch(jobs[first : first + self._config.batch], record)
        finally:
            self._engine.close()
            self._builder.close()

    def _batch(self, jobs: Sequence[Job], record: Record) -> None:
        """Ask about all, then again about those without a valid answer."""
        left: list[tuple[Job, Prompt, Usage]] = []
        for job in jobs:
            try:
                left.append((job, self._builder.build(Sample(id=job.rows[0], task="qa", query="", video=job.ref)), Usage()))
            except DataError as error:
                record(job, Outcome(kind="video", reason=str(error)))
        for number in range(self._config.tries):
            answers = self._draw([prompt for _, prompt, _ in left], number)
            last, asked, left = number + 1 == self._config.tries, left, []
            for (job, prompt, spent), answer in zip(asked, answers, strict=True):
                usage = spent + Usage(1, len(prompt.input_ids), len(answer.token_ids))
                outcome = _outcome(answer, prompt, usage)
                if outcome.kind is None or last:
                    record(job, outcome)
                else:
                    self.retried[INVALID] += 1
                    left.append((job, prompt, usage))

    def _draw(self, prompts: list[Prompt], number: int) -> list[Completion]:
        """Answer `number` (from 0) to every prompt."""
        sampling = replace(self._sampling, temperature=AGAIN_TEMPERATURE if number else 0.0)
        answers = self._engine.generate(prompts, n=1, sampling=sampling, seed=number, version=0)
        return [answer for (answer,) in answers]


def _outcome(answer: Completion, prompt: Prompt, usage: Usage) -> Outcome:
    try:
        parsed = parse_events(answer.text, duration=prompt.duration)
    except Refused as error:
        cut = "; the answer was cut at --max-tokens" if answer.finish == "length" else ""
        return Outcome(kind="answer", reason=f"{error}{cut} ({usage.requests} answers)", usage=usage)
    return Outcome(parsed.captions, parsed.dropped, usage=usage)
