"""`replay`: recorded answers instead of drawn ones, for debugging, offline training and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.registry import opt, register
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion
from vtgrl.model.types import Prompt
from vtgrl.rollout.held import HeldWeights
from vtgrl.rollout.protocol import EngineContext, Prefixes
from vtgrl.rollout.records import Record, from_record


@dataclass(frozen=True)
class ReplayConfig:
    """Where the answers come from."""

    path: str = opt("", "samples.jsonl of a run, or any file of such rows (see vtgrl/rollout/records.py)")
    step: int = opt(-1, "take the rows of this step; -1: the last row of every sample")


@register("engine", "replay", config=ReplayConfig)
def make(context: EngineContext, *, config: ReplayConfig) -> Replay:
    """Answers that were recorded in a JSONL file, by sample id; log-probs and versions stay as recorded."""
    if not config.path:
        raise ConfigError("rollout.engine.path: the replay engine needs a file of recorded answers")
    return Replay(read_records(Path(config.path), step=config.step), path=config.path)


class Replay:
    """The engine. Sampling settings and seed change nothing; weights are only counted."""

    def __init__(self, records: dict[str, Record], *, path: str) -> None:
        self.records = records
        self.path = path
        self.held = HeldWeights()

    @property
    def version(self) -> int:
        """Version that was published last."""
        return self.held.version

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        sampling: SamplingConfig,
        seed: int,
        version: int,
        prefixes: Prefixes | None = None,
    ) -> list[list[Completion]]:
        """The first n recorded completions of every prompt.

        Raises:
            RunError: `version` was not published.
            DataError: no row for a sample, too few completions, or recorded for another prompt or with other prefixes.
        """
        self.held.require(version)
        answers = [self._answers(p, n) for p in prompts]
        if prefixes is not None:
            for prompt, group, given in zip(prompts, answers, prefixes, strict=True):
                self._check_prefixes(prompt, group, given)
        return answers

    def publish(self, policy: Any, *, version: int) -> None:
        """Only remembers the version."""
        self.held.published(version)

    def close(self) -> None:
        """Forget the rows."""
        self.records = {}

    def _answers(self, prompt: Prompt, n: int) -> list[Completion]:
        record = self.records.get(prompt.sample.id)
        if record is None:
            raise DataError(f"{self.path}: no recorded answers for sample {prompt.sample.id!r}")
        if record.prompt_ids is not None and record.prompt_ids != prompt.input_ids:
            raise DataError(
                f"{self.path}: sample {prompt.sample.id!r} was recorded with another prompt "
                f"({len(record.prompt_ids)} tokens, now {len(prompt.input_ids)}); use the run's own video and prompt settings"
            )
        if len(record.completions) < n:
            raise DataError(f"{self.path}: sample {prompt.sample.id!r} has {len(record.completions)} recorded answers, {n} are needed")
        return list(record.completions[:n])

    def _check_prefixes(self, prompt: Prompt, answers: Sequence[Completion], given: Sequence[tuple[int, ...]]) -> None:
        odd = [m for m, (answer, ids) in enumerate(zip(answers, given, strict=True)) if answer.token_ids[: answer.given] != ids]
        if odd:
            raise DataError(
                f"{self.path}: sample {prompt.sample.id!r}: answer {odd[0]} was recorded with another prefix than the curriculum gives; "
                "use the run's own seed, step and curriculum, or curriculum=none to take the answers as they are"
            )


def read_records(path: Path, *, step: int) -> dict[str, Record]:
    """Sample id -> its rows' last record, or the one of `step`.

    Raises:
        DataError: a row cannot be read (file and row are named), or no row is of `step`.
    """
    records: dict[str, Record] = {}
    for number, row in read_jsonl(path):
        record = from_record(row, where=f"{path}:{number}")
        if step in (-1, record.step):
            records[record.id] = record
    if not records:
        raise DataError(f"{path}: no recorded answers" + (f" of step {step}" if step >= 0 else ""))
    return records
