"""Captions from a local model: a random one's answers are counted failures; valid answers (put into its mouth) become captions."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.registry import Component, get
from vtgrl.core.schema import SamplingConfig, VideoConfig
from vtgrl.core.types import Caption, Completion
from vtgrl.data.caption.run import CaptionOptions, caption_rows
from vtgrl.rollout.caption import LocalCaptioner, LocalConfig, local_mark, open_local

VIDEO = VideoConfig(backend="pyav", fps=1.0, max_frames=8, max_pixels=56 * 56, total_pixels=8 * 56 * 56)
ENGINES = [
    "hf",
    pytest.param(
        "vllm", marks=[pytest.mark.slow, pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")]
    ),
]


def options(world: Path, folder: Path, **more: Any) -> CaptionOptions:
    source = Component("source", "jsonl", get("source", "jsonl").config())
    return CaptionOptions(world / "world.jsonl", source, folder / "captioned.jsonl", None, VIDEO, again=True, limit=3, **more)


def config(model: Path, **more: Any) -> LocalConfig:
    return LocalConfig(**{"model": str(model), "engine": "hf", "dtype": "fp32", "max_tokens": 12, "batch": 2, "tries": 2, **more})


def caption(world: Path, folder: Path, local: LocalConfig) -> dict[str, Any]:
    return caption_rows(options(world, folder), mark=local_mark(local), make=lambda: open_local(local, video=VIDEO))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_random_models_answers_are_counted_failures(
    engine: Any, tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="not one of 3 clips got captions"):
        caption(world_dir, tmp_path, config(tiny_dir("qwen2_5_vl"), engine=engine))
    failures = [json.loads(line) for line in (tmp_path / "captioned.failures.jsonl").read_text().splitlines()]
    assert [(f["kind"], f["requests"]) for f in failures] == [("answer", 2)] * 3
    assert "not JSON" in failures[0]["reason"]
    assert "(2 answers)" in failures[0]["reason"]


def says_to(engine: Any, text_of: Callable[[Any, SamplingConfig], str]) -> list[tuple[str, float]]:
    """The engine draws as ever, but its answers read as told; -> (row, temperature) of every answer, growing."""
    drawn: list[tuple[str, float]] = []
    generate = engine.generate

    def speaks(prompts: Any, *, n: int, sampling: SamplingConfig, seed: int, version: int) -> list[list[Completion]]:
        answers = generate(prompts, n=n, sampling=sampling, seed=seed, version=version)
        drawn.extend((prompt.sample.id, sampling.temperature) for prompt in prompts)
        texts = [text_of(prompt, sampling) for prompt in prompts]
        return [[Completion(a.token_ids, a.logprobs, text, "stop", version)] for (a,), text in zip(answers, texts, strict=True)]

    engine.generate = speaks
    return drawn


def test_valid_answers_become_captions_and_others_are_drawn_again(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """The second clip's greedy answer is no JSON, its drawn one is; the prompt holds the length of the clip and not the query."""
    local = config(tiny_dir("qwen2_5_vl"))
    drawn: list[tuple[str, float]] = []
    prompts: list[str] = []

    def answer(prompt: Any, sampling: SamplingConfig) -> str:
        prompts.append(prompt.text)
        if prompt.sample.id.endswith("1") and sampling.temperature == 0:
            return "no"
        return json.dumps([{"start": 1, "end": 99, "event": f"of {prompt.sample.id}"}])

    def make() -> LocalCaptioner:
        captioner = open_local(local, video=VIDEO)
        nonlocal drawn
        drawn = says_to(captioner._engine, answer)
        return captioner

    result = caption_rows(options(world_dir, tmp_path), mark=local_mark(local), make=make)
    ids = [f"world-0-00000{i}" for i in range(3)]
    assert drawn == [(ids[0], 0.0), (ids[1], 0.0), (ids[1], 0.7), (ids[2], 0.0)]
    source = Component("source", "jsonl", get("source", "jsonl").config())
    rows = source(tmp_path / "captioned.jsonl", videos=world_dir).samples
    assert [row.captions for row in rows] == [(Caption(1.0, 8.0, f"of {name}"),) for name in ids]
    assert (result["requests"], result["asked_again"], result["clips_captioned"]) == (4, {"invalid answer": 1}, 3)
    assert result["prompt_tokens"] > 4 * 16
    assert all("The video is 8.00 seconds long" in text for text in prompts)
    assert not any(row.query in text for row in rows for text in prompts)
    again = caption_rows(options(world_dir, tmp_path), mark=local_mark(local), make=make)
    assert (again["done_before"], len(drawn)) == (3, 4)


def test_a_prompt_that_is_too_long_fails_its_clip_alone(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not one of 3 clips got captions, first: row world-0-000000: the prompt has \d+ tokens"):
        caption(world_dir, tmp_path, config(tiny_dir("qwen2_5_vl"), max_prompt_tokens=20))


def test_a_model_that_is_not_there(world_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-model"):
        caption(world_dir, tmp_path, config(tmp_path / "no-model"))


def test_weights_are_part_of_the_mark_and_settings_are_not(tiny_dir: Callable[[str], Path]) -> None:
    model = tiny_dir("qwen2_5_vl")
    assert local_mark(config(model)) == local_mark(config(model, max_tokens=99, batch=7, tries=9))
    assert local_mark(config(model)) != local_mark(config(model.parent))
