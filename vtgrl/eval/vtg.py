"""`vtgrl eval vtg`: one library function behind the command, with or without a model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from vtgrl.core.errors import ConfigError
from vtgrl.core.schema import Dtype, VideoConfig
from vtgrl.eval.run import BATCH
from vtgrl.eval.types import Policy, ThresholdOp

_FRAMES = ("fps", "max_frames", "video_tokens", "video", "max_prompt_tokens")
_NEEDS_MODEL = frozenset(("videos", "engine", "limit", "prompt", *_FRAMES, "max_tokens", "dtype", "batch", "shard", "nproc"))
"""Options that say nothing about a predictions file."""


@dataclass(frozen=True)
class VtgOptions:
    """All of `vtgrl eval vtg`; the command's help names the flags.

    predictions: score this file; else `model` answers. Empty strings, None and 0 leave a choice to protocol and model.
    out: folder for metrics.json and predictions.jsonl (rows.jsonl when only scoring). per_row: one JSON row a query.
    video: frame settings in place of the protocol's; fps, max_frames and video_tokens (merged vision tokens of a clip) change
    single ones. shard: "i/n", this process answers every n-th query into out/shard_i_of_n (`join_shards` puts them together).
    """

    benchmark: str
    annotations: Path
    predictions: Path | None = None
    model: str = ""
    videos: Path | None = None
    engine: Literal["", "hf", "vllm"] = ""
    out: Path | None = None
    protocol: str = ""
    parser: str = ""
    threshold_op: ThresholdOp | None = None
    policy: Policy | None = None
    clip_gt: bool | None = None
    unit: Literal["", "seconds", "percent", "frames"] = ""
    unit_fps: float = 0.0
    official: bool = False
    per_row: Path | None = None
    bootstrap: int = 0
    limit: int = 0
    prompt: str = ""
    fps: float = 0.0
    max_frames: int = 0
    video_tokens: int = 0
    video: VideoConfig | None = None
    max_tokens: int = 0
    max_prompt_tokens: int = 0
    dtype: Dtype | None = None
    batch: int = BATCH
    seed: int = 0
    shard: str = ""
    nproc: int = 1


def run_vtg(options: VtgOptions) -> dict[str, Any]:
    """Score a predictions file, or let a model answer the benchmark and score that.

    Returns the result document (see docs/evaluation.md); `vtgrl.eval.scoring.problems` says what `--strict` refuses.

    Raises:
        ConfigError: neither or both of model and predictions, or options that do not fit together.
        DataError: annotations, predictions or all videos cannot be used.
        EnvironmentMissing: the engine is not installed.
    """
    if (options.predictions is None) == (not options.model):
        raise ConfigError("give either --model M (answer the benchmark) or --predictions F (score a file)")
    if options.predictions is not None:
        _refuse_model_options(options)
        from vtgrl.eval.scoring import score_file

        return score_file(options)
    if options.official or options.bootstrap or (options.per_row and options.nproc > 1):
        raise ConfigError(
            "--official, --bootstrap and --per-row with --nproc score a finished file: then use --predictions OUT/predictions.jsonl"
        )
    if options.nproc > 1:
        from vtgrl.eval.shards import answer_in_parallel

        return answer_in_parallel(options)
    from vtgrl.eval.model_run import answer_benchmark

    return answer_benchmark(options)


def _refuse_model_options(options: VtgOptions) -> None:
    given = vars(options)
    changed = [field.name for field in fields(VtgOptions) if field.name in _NEEDS_MODEL and given[field.name] != field.default]
    if changed:
        flags = ", ".join("--" + name.replace("_", "-") for name in changed)
        raise ConfigError(f"{flags}: only for a run with --model; --predictions scores what the file holds, leave it out")
