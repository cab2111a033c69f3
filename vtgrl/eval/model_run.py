"""`vtgrl eval vtg --model`: build prompts, draw greedy answers with an engine, score them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vtgrl.core.digest import digest, weights_mark
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.log import logger
from vtgrl.core.registry import Component, get
from vtgrl.core.schema import Dtype, SamplingConfig, VideoConfig
from vtgrl.core.types import Sample
from vtgrl.eval.files import find_video
from vtgrl.eval.progress import show_progress
from vtgrl.eval.protocol import Protocol
from vtgrl.eval.rules import ALL, Rules, choose_protocol, make_rules
from vtgrl.eval.run import evaluate
from vtgrl.eval.scoring import common_header, load_truth
from vtgrl.eval.shards import shard_folder, take_shard
from vtgrl.eval.summary import document
from vtgrl.model.load import ModelParts, load_parts
from vtgrl.model.prompting import PromptBuilder
from vtgrl.rollout.protocol import RolloutEngine
from vtgrl.rollout.standalone import choose_dtype, choose_engine, open_engine

if TYPE_CHECKING:
    from vtgrl.eval.vtg import VtgOptions

PROMPT_ROOM = 2048
"""Prompt tokens beside those of the video, unless --max-prompt-tokens says otherwise."""


@dataclass(frozen=True)
class Plan:
    """What a run does, resolved: goes into the result and, as a digest, into the key of every answer."""

    engine: Literal["hf", "vllm"]
    dtype: Dtype
    prompt: Component
    video: VideoConfig
    sampling: SamplingConfig
    max_prompt_tokens: int


def answer_benchmark(options: VtgOptions) -> dict[str, Any]:
    """Answer the benchmark (or this process's shard of it) with a model; writes predictions.jsonl and metrics.json.

    Raises:
        ConfigError: no --out, an unknown engine, prompt or protocol, a model that cannot be loaded.
        DataError: not one of the videos exists.
    """
    if options.out is None:
        raise ConfigError("--model needs --out DIR: answers are written as they come, so that a run can be resumed")
    if options.parser == ALL:
        raise ConfigError("--parser all scores a finished file: run once, then use --predictions OUT/predictions.jsonl --parser all")
    truth, bench = load_truth(options.benchmark, options.annotations, limit=options.limit)
    rules = make_rules(
        choose_protocol(bench.protocols, options.protocol), parser=options.parser, threshold_op=options.threshold_op,
        policy=options.policy, clip_gt=options.clip_gt, unit=options.unit, fps=options.unit_fps,
    )  # fmt: skip
    samples, lost = locate(take_shard(truth.rows, options.shard), options.videos or options.annotations.parent)
    parts = load_parts(options.model)
    plan = make_plan(options, rules.protocol, parts)
    header = {**common_header(options, rules, truth, None), **_describe(options, plan), "videos_missing": len(lost)}
    out = shard_folder(options.out, options.shard)
    engine, builder = open_plan(parts, plan, seed=options.seed)
    try:
        result = evaluate(
            engine, builder, samples, sampling=plan.sampling, seed=options.seed, version=0, out=out, parser=rules.scorers[0],
            run=run_key(options.model, plan, seed=options.seed), batch=options.batch, progress=show_progress(), header=header,
        )  # fmt: skip
    finally:
        engine.close()
        builder.close()
    if options.per_row is not None:
        atomic_write(options.per_row, "".join(to_line({"qid": row["id"], **row}) for row in result.rows))
    return _document(rules, result.rows, header)


def _document(rules: Rules, rows: Sequence[dict[str, Any]], header: dict[str, Any]) -> dict[str, Any]:
    scorer = rules.scorers[0]
    own = {"parser": scorer.parser, "threshold_op": scorer.config.threshold_op, "policy": scorer.config.policy}
    return document(rows, threshold_op=scorer.config.threshold_op, header={**header, **own})


def locate(samples: Sequence[Sample], videos: Path) -> tuple[list[Sample], list[str]]:
    """Samples with the paths of their files, and the names of videos that are not there (their queries will be misses).

    Raises:
        DataError: none of the videos exists.
    """
    paths: dict[str, Path | None] = {}
    found: list[Sample] = []
    for sample in samples:
        assert sample.video is not None
        name = sample.video.path
        if name not in paths:
            paths[name] = find_video(videos, name)
        found.append(replace(sample, video=replace(sample.video, path=str(paths[name] or videos / name))))
    lost = [name for name, path in paths.items() if path is None]
    if lost and len(lost) == len(paths):
        raise DataError(f"{videos}: none of the {len(paths)} videos is there, first {lost[0]}; check --videos")
    if lost:
        logger.warning("%s: %d of %d videos are missing, first %s; their queries count as 0", videos, len(lost), len(paths), lost[0])
    return found, lost


def make_plan(options: VtgOptions, protocol: Protocol, parts: ModelParts) -> Plan:
    """Protocol settings, changed by the options, for this model.

    Raises:
        ConfigError: an unknown prompt, or an engine that is not installed was chosen by name.
    """
    tokens = options.video_tokens or protocol.video_tokens
    changes: dict[str, Any] = {"fps": options.fps, "max_frames": options.max_frames, "video_tokens": options.video_tokens}
    chosen = replace(protocol, **{key: value for key, value in changes.items() if value})
    prompt = options.prompt or protocol.prompt
    sampling = protocol.sampling()
    return Plan(
        engine=choose_engine(options.engine),
        dtype=choose_dtype(options.dtype),
        prompt=Component("prompt", prompt, get("prompt", prompt).config()),
        video=options.video or chosen.video(parts.family.unit(parts.config), base=VideoConfig()),
        sampling=replace(sampling, max_tokens=options.max_tokens) if options.max_tokens else sampling,
        max_prompt_tokens=options.max_prompt_tokens or tokens + PROMPT_ROOM,
    )


def open_plan(parts: ModelParts, plan: Plan, *, seed: int) -> tuple[RolloutEngine, PromptBuilder]:
    """Engine and prompt builder of a plan. Close both."""
    return open_engine(
        parts, engine=plan.engine, dtype=plan.dtype, template=plan.prompt, video=plan.video,
        max_prompt_tokens=plan.max_prompt_tokens, sampling=plan.sampling, seed=seed,
    )  # fmt: skip


def _describe(options: VtgOptions, plan: Plan) -> dict[str, Any]:
    return {
        "model": options.model,
        "engine": plan.engine,
        "dtype": plan.dtype,
        "prompt": plan.prompt.name,
        "video": asdict(plan.video),
        "sampling": asdict(plan.sampling),
        "seed": options.seed,
    }


def run_key(model: str, plan: Plan, *, seed: int) -> str:
    """What an answer depends on beside its query: weights, prompt, frames, decoding, engine and number format."""
    effort = ("timeout_s", "workers", "ahead_gb", "cache_dir", "cache_gb")
    video = {k: v for k, v in asdict(plan.video).items() if k not in effort}
    prompt = [plan.prompt.name, asdict(plan.prompt.config)]
    return digest([weights_mark(model), plan.engine, plan.dtype, prompt, video, asdict(plan.sampling), seed])
