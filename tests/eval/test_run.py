"""Answering with an engine: resumed by id, one miss for a broken clip, ranks in step, real models on real clips."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.eval.kit import read_jsonl, sample
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion, Sample
from vtgrl.eval.run import evaluate, rounds_of, summarise
from vtgrl.eval.shards import join_shards
from vtgrl.eval.store import FOREIGN, PREDICTIONS, PredictionStore
from vtgrl.eval.vtg import VtgOptions, run_vtg


@dataclass
class Spoken:
    """Stands in for a Prompt: what `evaluate` reads of one."""

    sample: Sample
    duration: float = 30.0


class Builder:
    """Refuses the samples that are named broken."""

    def build(self, sample: Sample) -> Spoken:
        if sample.id.startswith("broken"):
            raise DataError(f"{sample.id}.mp4: damaged")
        return Spoken(sample)


@dataclass
class Engine:
    """Answers every query with its own number; notes its calls; fails after `survive` of them."""

    survive: int = 1000
    calls: list[list[str]] = field(default_factory=list)
    version: int = 0

    def generate(self, prompts: Sequence[Any], *, n: int, sampling: SamplingConfig, seed: int, version: int) -> list[list[Completion]]:
        if len(self.calls) == self.survive:
            raise KeyboardInterrupt
        self.calls.append([p.sample.id for p in prompts])
        return [[Completion((1, 2), (0.0, 0.0), f"<answer>0 to {p.sample.id[-1]}</answer>", "stop", version)] for p in prompts]


def go(engine: Engine, samples: Sequence[Sample], out: Path | None = None, **options: Any) -> Any:
    return evaluate(engine, Builder(), samples, sampling=SamplingConfig(), seed=0, version=0, out=out, batch=2, **options)  # type: ignore[arg-type]


SAMPLES = [sample(f"q{k}", [(0, 8)]) for k in range(1, 8)]


def test_metrics_and_rows() -> None:
    result = go(Engine(), SAMPLES)
    assert result.metrics["miou"] == pytest.approx(sum(k / 8 for k in range(1, 8)) / 7)
    assert result.metrics["r1@0.5"] == pytest.approx(4 / 7)
    assert [row["pred"] for row in result.rows] == [[0.0, float(k)] for k in range(1, 8)]
    assert summarise(result.rows) == result.metrics


def test_rows_of_several_ranks_give_the_metrics_of_one() -> None:
    whole = go(Engine(), SAMPLES)
    parts = [go(Engine(), SAMPLES[rank::2]).rows for rank in range(2)]
    merged = summarise([row for part in parts for row in part])
    assert merged == pytest.approx(whole.metrics)


def test_ranks_make_equally_many_calls() -> None:
    """7 queries on 2 ranks in batches of 2: both call the engine twice, whatever is already answered."""
    rounds = rounds_of(7, ranks=2, batch=2)
    calls = []
    for rank in range(2):
        engine = Engine()
        go(engine, SAMPLES[rank::2], rounds=rounds)
        calls.append(len(engine.calls))
    assert calls == [rounds, rounds] == [2, 2]
    empty = Engine()
    go(empty, [], rounds=rounds)
    assert empty.calls == [[], []]


def test_resume_after_a_stop_is_the_same_file(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    go(Engine(), SAMPLES, whole)
    with pytest.raises(KeyboardInterrupt):
        go(Engine(survive=2), SAMPLES, broken)
    file = broken / PREDICTIONS
    file.write_text(file.read_text() + '{"id": "q5", "outp')  # the machine went down in the middle of a line
    engine = Engine()
    go(engine, SAMPLES, broken)
    assert [name for call in engine.calls for name in call] == ["q5", "q6", "q7"]
    for name in (PREDICTIONS, "metrics.json"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    again = Engine()
    go(again, SAMPLES, broken)
    assert again.calls == []


def test_an_answer_with_odd_line_ends_is_one_row(tmp_path: Path) -> None:
    odd = PredictionStore(tmp_path, run="r", keys={"q1": "k"})
    odd.add([{"id": "q1", "output_text": "a\u2028b\x0bc\r\nd", "error": None}])
    assert PredictionStore(tmp_path, run="r", keys={"q1": "k"}).done["q1"]["output_text"] == "a\u2028b\x0bc\r\nd"


def test_answers_of_another_run_are_moved_aside(tmp_path: Path) -> None:
    go(Engine(), SAMPLES, tmp_path, run="model A")
    engine = Engine()
    go(engine, SAMPLES, tmp_path, run="model B")
    assert sum(map(len, engine.calls)) == 7
    assert len(read_jsonl(tmp_path / FOREIGN)) == 7
    changed = [sample("q1", [(0, 8)], query="another question"), *SAMPLES[1:]]
    engine = Engine()
    go(engine, changed, tmp_path, run="model B")
    assert engine.calls == [["q1"]]


def test_a_smaller_limit_keeps_the_other_answers(tmp_path: Path) -> None:
    go(Engine(), SAMPLES, tmp_path)
    few = go(Engine(survive=0), SAMPLES[:2], tmp_path)
    assert few.metrics["n"] == 2
    assert json.loads((tmp_path / "metrics.json").read_text())["n"] == 2
    go(Engine(survive=0), SAMPLES, tmp_path)  # nothing has to be answered again


def test_a_broken_clip_costs_one_miss_and_is_tried_again(tmp_path: Path) -> None:
    samples = [SAMPLES[0], sample("broken1", [(0, 8)]), SAMPLES[1]]
    result = go(Engine(), samples, tmp_path)
    assert [row["kind"] for row in result.rows] == ["ok", "missing", "ok"]
    assert "damaged" in result.rows[1]["error"]
    document = json.loads((tmp_path / "metrics.json").read_text())
    assert (document["n"], document["missing"]) == (3, 1)
    assert document["metrics_found"]["mIoU"] > document["metrics"]["mIoU"]
    engine = Engine()
    go(engine, samples, tmp_path)
    assert engine.calls == [[]]


def test_ids_have_to_be_unique() -> None:
    with pytest.raises(DataError, match="occur more than once, first 'q1'"):
        go(Engine(), [SAMPLES[0], SAMPLES[0]])
    with pytest.raises(DataError, match="no true window, first 'x'"):
        go(Engine(), [sample("x", [])])


def test_a_line_that_is_no_row_is_an_error(tmp_path: Path) -> None:
    (tmp_path / PREDICTIONS).write_text('nonsense\n{"id": "q1"}\n')
    with pytest.raises(DataError, match=r"predictions.jsonl:1: not a prediction row"):
        go(Engine(), SAMPLES, tmp_path)


# --- real models -----------------------------------------------------------------------------------------------------


def options(model: Path, annotations: Path, videos: Path, out: Path, **more: Any) -> VtgOptions:
    return VtgOptions(
        **{
            "benchmark": "jsonl",
            "annotations": annotations,
            "videos": videos,
            "model": str(model),
            "engine": "hf",
            "out": out,
            "prompt": "direct",
            "video_tokens": 64,
            "max_frames": 8,
            "max_tokens": 8,
            "batch": 4,
            "limit": 6,
            **more,
        }
    )


def test_tiny_model_on_generated_clips(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """Whole, in two shards, and with a missing video."""
    model = tiny_dir("qwen2_5_vl")
    given = options(model, world_dir / "world.jsonl", world_dir, tmp_path / "whole")
    whole = run_vtg(given)
    assert (whole["n"], whole["missing"], whole["engine"], whole["prompt"]) == (6, 0, "hf", "direct")
    assert whole["sampling"]["temperature"] == 0.0
    for shard in ("0/2", "1/2"):
        run_vtg(options(model, given.annotations, world_dir, tmp_path / "parts", shard=shard))
    joined = join_shards(tmp_path / "parts")
    assert joined["metrics"] == whole["metrics"]
    assert (tmp_path / "parts" / PREDICTIONS).read_bytes() == (tmp_path / "whole" / PREDICTIONS).read_bytes()
    rows = read_jsonl(world_dir / "world.jsonl")[:3]
    rows[1]["video"]["path"] = "videos/gone.mp4"
    broken = tmp_path / "broken.jsonl"
    broken.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run_vtg(options(model, broken, world_dir, tmp_path / "broken"))
    assert (result["n"], result["missing"], result["videos_missing"]) == (3, 1, 1)


def test_no_video_at_all_is_an_error(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none of the 6 videos is there"):
        run_vtg(options(tiny_dir("qwen2_5_vl"), world_dir / "world.jsonl", tmp_path, tmp_path / "out"))
    with pytest.raises(ConfigError, match="needs --out"):
        run_vtg(VtgOptions("jsonl", world_dir / "world.jsonl", model="m"))


ENGINES = ["hf", pytest.param("vllm", marks=pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"))]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_ten_real_charades_queries_resumed_half_way(tiny_dir: Callable[[str], Path], shared_dir: Path, tmp_path: Path, engine: str) -> None:
    lines = (shared_dir / "data/charades_sta/videox_charades_sta_test.txt").read_text().splitlines()
    annotations = tmp_path / "ten.txt"
    annotations.write_text("\n".join(line for line in lines if line.split()[0] in ("OHOFG", "3MSZA")))
    (tmp_path / "Charades_v1_test.csv").symlink_to(shared_dir / "data/charades_sta/Charades_v1_test.csv")
    more = {
        "benchmark": "charades_sta",
        "engine": engine,
        "limit": 0,
        "prompt": "",
        "max_tokens": 12,
        "video_tokens": 256,
        "max_frames": 32,
    }
    given = options(tiny_dir("qwen2_5_vl"), annotations, shared_dir / "data/videos", tmp_path / "out", **more)
    assert run_vtg(given)["n"] == 10
    whole = (tmp_path / "out" / PREDICTIONS).read_text()
    (tmp_path / "out" / PREDICTIONS).write_text("".join(whole.splitlines(keepends=True)[:5]))
    run_vtg(given)
    assert (tmp_path / "out" / PREDICTIONS).read_text() == whole
