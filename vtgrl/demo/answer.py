"""A model that answers one question about one clip at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import Dtype, SamplingConfig
from vtgrl.core.types import Sample, VideoRef
from vtgrl.demo.reply import Reply, read_reply
from vtgrl.demo.settings import DemoConfig
from vtgrl.model.load import load_parts
from vtgrl.model.prompting import PromptBuilder
from vtgrl.rollout.protocol import RolloutEngine
from vtgrl.rollout.standalone import choose_dtype, choose_engine, open_engine

SEED = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, how many tokens it has, and the seconds from question to answer (decoding of the clip included)."""

    reply: Reply
    tokens: int
    seconds: float


class Answerer:
    """An engine and the builder of its prompts. Close it."""

    def __init__(self, engine: RolloutEngine, builder: PromptBuilder, *, sampling: SamplingConfig) -> None:
        self._engine, self._builder, self._sampling = engine, builder, sampling

    def ask(self, clip: Path, query: str) -> Answer:
        """Answer a question.

        Raises:
            DataError: the clip cannot be read, or the prompt is too long; one line, which names the file without its folder.
        """
        begin = time.monotonic()
        sample = Sample(id="question", task="vtg", query=query, video=VideoRef(str(clip)))
        try:
            prompt = self._builder.build(sample)
            [[completion]] = self._engine.generate([prompt], n=1, sampling=self._sampling, seed=SEED, version=0)
        except DataError as error:
            raise DataError(str(error).replace(str(clip), clip.name)) from error
        reply = read_reply(completion.text, duration=prompt.duration, query=query, cut=completion.finish == "length")
        return Answer(reply, len(completion.token_ids), time.monotonic() - begin)

    def close(self) -> None:
        """Free the engine and stop decoding processes."""
        self._engine.close()
        self._builder.close()


def open_answerer(model: str, config: DemoConfig, *, engine: Literal["", "hf", "vllm"] = "", dtype: Dtype | None = None) -> Answerer:
    """Load the model.

    Args:
        model: Hugging Face folder or hub name.
        engine: empty: vLLM on a GPU when it is installed, else hf. dtype: None: bf16 on a GPU, else fp32.

    Raises:
        ConfigError: it cannot be loaded, or sees no video.
        EnvironmentMissing: the engine is not installed.
    """
    parts = load_parts(model)
    if not parts.family.unit(parts.config):
        raise ConfigError(f"{model}: a text-only model; the demo needs one that sees video")
    opened, builder = open_engine(
        parts, engine=choose_engine(engine), dtype=choose_dtype(dtype), template=config.prompt, video=config.video,
        max_prompt_tokens=config.max_prompt_tokens, sampling=config.sampling, seed=SEED,
    )  # fmt: skip
    return Answerer(opened, builder, sampling=config.sampling)
