"""From the files that the stages left to the records of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vtgrl import __version__
from vtgrl.core.host import cpu_count
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.registry import Component, get
from vtgrl.core.schema import VideoConfig
from vtgrl.core.spans import iou
from vtgrl.core.types import Sample, Window
from vtgrl.data.load import load_samples
from vtgrl.data.video.plan import resolve_policy
from vtgrl.data.video.reader import load_clip
from vtgrl.eval.store import load_scored, read_json
from vtgrl.quickstart.frames import strip
from vtgrl.quickstart.report import Answer, Card, Report, Score, Stage
from vtgrl.quickstart.stages import Stage as Command
from vtgrl.quickstart.svg import Chart, Point, Series

CARDS = 12
UNIT = 28
"""Patch times merge size of the tiny model."""

Rows = Sequence[Mapping[str, Any]]


def gather_report(out: Path, stages: Sequence[Command], seconds: Mapping[str, float], *, seed: int, engine: str) -> Report:
    """Read runs and evaluations below `out`.

    Raises:
        DataError: a file of a finished stage is missing or damaged.
    """
    sft, grpo = (_metrics(out / kind / "metrics.jsonl") for kind in ("sft", "grpo"))
    documents = [read_json(out / "eval" / kind / "metrics.json") for kind in ("sft", "grpo")]
    recipes = [_resolved(out / kind) for kind in ("sft", "grpo")]
    counts = {key: _count(out / "world" / key / "world.jsonl") for key in ("train", "val")}
    return Report(
        title="A tiny video model learns to ground language in time",
        lead=lead(counts["train"], len(sft), len(grpo), rollouts=recipes[1]["rollout"]["n"], blind=blind_miou(out)),
        scores=scores(*documents),
        charts=charts(sft, grpo, recipes[1], held_out=counts["val"]),
        cards=cards(out),
        stages=tuple(Stage(s.name, s.command, seconds[s.key], _left(s.key, counts, len(sft), len(grpo), engine)) for s in stages),
        facts=_facts(recipes, grpo, engine=engine, seed=seed),
    )


def lead(clips: int, sft_steps: int, grpo_steps: int, *, rollouts: int, blind: float) -> str:
    """What happened, and what an answer without looking would be worth."""
    return (
        f"A random Qwen2.5-VL of one million parameters saw {clips:,} generated clips and learned to say when a named shape is visible: "
        f"{sft_steps} steps of supervised fine-tuning (SFT), then {grpo_steps} of GRPO, where it draws {rollouts} answers to each question "
        f"and is rewarded for their overlap with the truth. Without looking, the best single answer to all questions has mIoU {blind:.3f}."
    )


def blind_miou(out: Path) -> float:
    """Held-out mIoU of one span for all questions, the one that fits the training clips best (grid of half a second)."""
    train, val = (_windows(out / "world" / key / "world.jsonl") for key in ("train", "val"))
    ends = [k / 2 for k in range(int(2 * max(end for _, end in train)) + 1)]
    spans = [(start, end) for start in ends for end in ends if start < end]
    best = max(spans, key=lambda span: math.fsum(iou(span, w) for w in train))
    return math.fsum(iou(best, w) for w in val) / len(val)


def scores(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Score, ...]:
    """The rows of the table, from two evaluation documents; mIoU first."""
    rows = [
        Score(
            name,
            before["metrics"][name],
            after["metrics"][name],
            before["standard_errors"].get(name, 0.0),
            after["standard_errors"].get(name, 0.0),
        )
        for name in before["metrics"]
    ]
    unread = [float(d["missing"] + sum(d["parse_failures"].values())) for d in (before, after)]
    return (*rows, Score("answers without a span", unread[0], unread[1], digits=0, lower=True))


def charts(sft: Rows, grpo: Rows, recipe: Mapping[str, Any], *, held_out: int) -> tuple[Chart, ...]:
    """Loss, reward, held-out mIoU over both stages, and how well engine and trainer agree."""
    first = len(sft)
    val = _points(sft, "val/miou"), tuple((first + x, y) for x, y in _points(grpo, "val/miou"))
    joined = (*val[0][-1:], *val[1])
    return (
        Chart(
            "SFT loss",
            "mean negative log-probability of the answers' tokens",
            (Series("loss", _points(sft, "loss"), "a", 20),),
            from_zero=True,
        ),
        Chart("GRPO: IoU of sampled answers", _drawn(recipe), (Series("reward", _points(grpo, "reward/iou"), "b", 20),)),
        Chart(
            "Held-out mIoU",
            f"greedy answers on {held_out} clips that no training saw: SFT (grey), then GRPO (blue)",
            (Series("SFT", val[0], "a"), Series("GRPO", joined, "b")),
            from_zero=True,
        ),
        Chart(
            "Engine against trainer",
            "largest difference between the log-probability at sampling and at training",
            (Series("difference", _points(grpo, "rollout/logp_diff_max"), "c"),),
            from_zero=True,
            x_label="GRPO step",
        ),
    )


def cards(out: Path, *, most: int = CARDS) -> tuple[Card, ...]:
    """Held-out clips with both answers: the first ones of the file, nothing picked by its score."""
    val = out / "world" / "val"
    source = Component("source", "jsonl", get("source", "jsonl").config())
    samples = load_samples(source, path=val / "world.jsonl", limit=most).samples
    answered = {kind: {row["id"]: row for row in load_scored(out / "eval" / kind / "predictions.jsonl")} for kind in ("sft", "grpo")}
    policy = resolve_policy(VideoConfig(max_frames=16), unit=UNIT)
    return tuple(_card(s, answered, policy) for s in samples)


def _card(sample: Sample, answered: Mapping[str, Mapping[str, Any]], policy: Any) -> Card:
    assert sample.video is not None
    clip = load_clip(sample.video, policy=policy, backend="decord", timeout_s=60.0)
    answers = tuple(_answer(name, answered[key][sample.id]) for name, key in (("SFT", "sft"), ("GRPO", "grpo")))
    frames = strip(clip.frames_THWC, clip.times, duration=clip.duration)
    return Card(sample.id, sample.query, clip.duration, sample.windows, answers, frames)


def _answer(who: str, row: Mapping[str, Any]) -> Answer:
    window = (float(row["pred"][0]), float(row["pred"][1])) if row["pred"] else None
    return Answer(who, row["output_text"] or "", window, float(row["iou"]))


def _metrics(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(path)]


def _points(rows: Rows, key: str) -> tuple[Point, ...]:
    return tuple((float(r["step"]), float(r[key])) for r in rows if r.get(key) is not None)


def _drawn(recipe: Mapping[str, Any]) -> str:
    return f"{recipe['train']['batch']} questions x {recipe['rollout']['n']} answers a step"


def _windows(path: Path) -> list[Window]:
    return [(float(s), float(e)) for _, row in read_jsonl(path) for s, e in row["windows"][:1]]


def _count(path: Path) -> int:
    return sum(1 for _ in read_jsonl(path))


def _resolved(run: Path) -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load((run / "resolved.yaml").read_text(encoding="utf-8"))
    return recipe


def _left(key: str, counts: Mapping[str, int], sft_steps: int, grpo_steps: int, engine: str) -> str:
    said = {
        "world-train": f"{counts['train']} mp4 files, one question each",
        "world-val": f"{counts['val']} other mp4 files, for evaluation only",
        "model": "config, weights, tokenizer and processor of a Hugging Face folder",
        "sft": f"{sft_steps} steps",
        "grpo": f"{grpo_steps} steps; answers drawn by the engine {engine}",
    }
    return said.get(key, "predictions.jsonl and metrics.json")


def _facts(recipes: Sequence[Mapping[str, Any]], grpo: Rows, *, engine: str, seed: int) -> tuple[tuple[str, str], ...]:
    worst = max((float(r["rollout/logp_diff_max"]) for r in grpo if r.get("rollout/logp_diff_max") is not None), default=math.nan)
    return (
        ("vtgrl", __version__),
        ("CPU cores", str(cpu_count())),
        ("seed", str(seed)),
        ("SFT", f"learning rate {recipes[0]['optim']['lr']:g}, {recipes[0]['train']['batch']} rows a step"),
        ("GRPO", f"learning rate {recipes[1]['optim']['lr']:g}, {_drawn(recipes[1])}"),
        ("rollout engine", engine),
        ("worst engine-trainer difference", f"{worst:.1e}"),
    )
