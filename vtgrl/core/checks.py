"""What the range of one key cannot say: keys that have to agree with each other."""

from __future__ import annotations

from collections.abc import Iterator

from vtgrl.core.probes import ProbeConfig, needed_probes, setting_problems
from vtgrl.core.schema import DataConfig, GrpoRecipe, ModelConfig, SamplingConfig, SftRecipe, TrainConfig, VideoConfig, ZeroConfig

GROUP_BASELINES = ("dr_grpo", "grpo", "rloo")
"""Advantages that compare an answer with the others of its group."""

Problem = tuple[str, str]
"""(dotted key, what is wrong and the fix)."""


def problems(recipe: object) -> list[Problem]:
    """Contradictions in a recipe; empty when there are none."""
    found: list[Problem] = []
    if isinstance(recipe, SftRecipe | GrpoRecipe):
        found += [*_video(recipe.video), *_zero(recipe.zero, recipe.model), *_validation(recipe.train, recipe.data)]
        found += [*_sampling("validation", recipe.validation), *_filter(recipe)]
    if isinstance(recipe, GrpoRecipe):
        found += [*_sampling("rollout.sampling", recipe.rollout.sampling), *_group(recipe), *_updates(recipe), *_probes(recipe)]
        found += [] if recipe.reward else [("reward", "is empty: nothing would be learned; name one of `vtgrl ls reward`")]
    return found


def missing(recipe: SftRecipe | GrpoRecipe) -> list[Problem]:
    """Keys without a useful default that a run needs."""
    wanted = {"model.path": recipe.model.path, "data.path": recipe.data.path}
    return [(key, f"is empty; add {key}=...") for key, value in wanted.items() if not value]


def _video(video: VideoConfig) -> Iterator[Problem]:
    for key, value in (("min_frames", video.min_frames), ("max_frames", video.max_frames)):
        if value % 2:
            yield f"video.{key}", f"{value} is odd; two frames make one temporal patch, use an even number"
    if video.min_frames > video.max_frames:
        yield "video.min_frames", f"{video.min_frames} is above max_frames = {video.max_frames}"
    if video.max_pixels and video.min_pixels > video.max_pixels:
        yield "video.min_pixels", f"{video.min_pixels} is above max_pixels = {video.max_pixels}"


def _zero(zero: ZeroConfig, model: ModelConfig) -> Iterator[Problem]:
    if zero.stage == 0 and model.dtype == "bf16":
        yield "zero.stage", "0 with bf16 would add gradients up in bf16; use zero.stage=1 or model.dtype=fp32"
    if zero.offload_params and zero.stage != 3:
        yield "zero.offload_params", f"needs zero.stage=3, and it is {zero.stage}"
    if zero.offload_optimizer and zero.stage == 0:
        yield "zero.offload_optimizer", "needs zero.stage=1, 2 or 3, and it is 0"


def _validation(train: TrainConfig, data: DataConfig) -> Iterator[Problem]:
    if train.val_every and not data.val_path and not data.hold_out:
        yield "train.val_every", "needs validation rows; add data.val_path=... or data.hold_out=0.05, or set it to 0"
    if data.val_path and data.hold_out:
        yield "data.hold_out", f"{data.hold_out:g} would set training rows apart, and data.val_path names validation rows; use one of them"


def _filter(recipe: SftRecipe | GrpoRecipe) -> Iterator[Problem]:
    rule, train, answers = recipe.data.filter, recipe.train, recipe.validation
    if not rule.every:
        return
    if rule.above >= rule.up_to:
        yield "data.filter.above", f"{rule.above:g} is not below data.filter.up_to = {rule.up_to:g}: no row could stay"
    if not train.steps and rule.every >= train.epochs:
        yield "data.filter.every", f"{rule.every} of train.epochs = {train.epochs} leaves no epoch to filter; use fewer, or 0 for none"
    if answers.temperature:
        yield "validation.temperature", f"{answers.temperature:g}: data.filter judges rows by greedy answers; use 0"
    longest = recipe.rollout.sampling.max_tokens if isinstance(recipe, GrpoRecipe) else 0
    if answers.max_tokens < longest:
        why = "data.filter would judge rows by answers that are cut sooner than those that train; use as many"
        yield "validation.max_tokens", f"{answers.max_tokens} is below rollout.sampling.max_tokens = {longest}: {why}"


def _sampling(path: str, sampling: SamplingConfig) -> Iterator[Problem]:
    if sampling.top_k == 0:
        yield f"{path}.top_k", "0 allows no token; use -1 for off"


def _group(recipe: GrpoRecipe) -> Iterator[Problem]:
    n, name = recipe.rollout.n, recipe.algo.advantage.name
    if n == 1 and name in GROUP_BASELINES:
        yield "rollout.n", f"advantage {name!r} compares the answers of a group, and a group of 1 teaches nothing; use rollout.n=2 or more"
    if n > 1 and recipe.rollout.sampling.temperature == 0:
        yield "rollout.sampling.temperature", f"0 is greedy: all {n} answers of a group would be the same; use 1.0"


def _updates(recipe: GrpoRecipe) -> Iterator[Problem]:
    batch, updates = recipe.train.batch, recipe.algo.updates
    if batch % updates:
        yield "algo.updates", f"train.batch = {batch} cannot be split into {updates} equal optimizer steps"


def _probes(recipe: GrpoRecipe) -> Iterator[Problem]:
    """The sampler's log-probs are a baseline only where they are the policy's own, and given tokens have none."""
    yield from (("probes", problem) for problem in setting_problems(recipe.reward, recipe.probes))
    sampling = recipe.rollout.sampling
    renormalised = "top_p" if sampling.top_p < 1 else "top_k" if sampling.top_k > 0 else ""
    given = recipe.curriculum.name != "none"
    for probe in needed_probes(recipe.reward, recipe.probes):
        if not isinstance(probe.config, ProbeConfig) or probe.config.baseline != "sampler":
            continue
        fix = f"write probes=[{{name: {probe.name}, baseline: trainer}}]"
        if renormalised:
            yield "probes", f"rollout.sampling.{renormalised} renormalises the sampler's log-probs, so they are no baseline; {fix}"
        if given and probe.config.tokens != "own_reasoning":
            yield "probes", f"tokens: {probe.config.tokens} holds a curriculum's given tokens, of which the sampler has no log-probs; {fix}"
