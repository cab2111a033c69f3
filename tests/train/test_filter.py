"""Rows between epochs: what the filter measures, writes and reads again; runs with it on one and two ranks, resumed and ended early."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.train.kit import grpo_recipe, run_ranks, sft_recipe
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.recipe import dump_recipe, load_recipe
from vtgrl.core.runfolder import RunFolder
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Sample, VideoRef
from vtgrl.train.filter import EpochFilter
from vtgrl.train.grpo import run_grpo
from vtgrl.train.order import EpochOrder, make_order
from vtgrl.train.plan import plan
from vtgrl.train.sft import run_sft
from vtgrl.train.world import World

# --- the filter alone, with answers that are written down ---------------------------------------------------------------


class Policy:
    """Stands for the policy: a table of p by row; None: the clip cannot be opened. Notes what it was asked."""

    def __init__(self, p: dict[str, float | None], *, finish: str = "stop") -> None:
        self.p, self.finish, self.asked = p, finish, []

    def __call__(self, step: int, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        self.asked.append((step, [s.id for s in samples]))
        return [self.row(s.id, self.p[s.id]) for s in reversed(samples)]  # the order of ranks, not of rows

    def row(self, name: str, p: float | None) -> dict[str, Any]:
        lost = p is None
        return {
            "id": name, "iou": 0.0 if lost else p, "kind": "missing" if lost else "ok", "finish": self.finish,
            "error": "damaged" if lost else None,
        }  # fmt: skip


def rows(n: int) -> tuple[Sample, ...]:
    return tuple(Sample(id=f"q{i}", task="vtg", query="he eats", video=VideoRef("a.mp4"), windows=((1.0, 2.0),)) for i in range(n))


def session(folder: Path, n: int, *overrides: str) -> Any:
    keys = ["data.filter.every=1", "train.epochs=9", "train.batch=2", "data.filter.order=shuffled", *overrides]
    recipe, train = load_recipe(GrpoRecipe, overrides=keys), rows(n)
    return SimpleNamespace(
        recipe=recipe, world=World(0, 1, torch.device("cpu")), folder=RunFolder(folder), train=train, order=make_order(recipe, train)
    )


def epoch_set(order: EpochOrder, epoch: int) -> set[str]:
    return {f"q{i}" for i in order.sets[epoch]}


def test_what_is_solved_or_hopeless_is_left_out_and_can_return(tmp_path: Path) -> None:
    """R9: the published loop looks at the kept rows only, so that a row with one bad answer is lost for good."""
    run = session(tmp_path, 5)
    policy = Policy({"q0": 0.0, "q1": 0.4, "q2": 0.7, "q3": 0.8, "q4": 0.1})
    rule = EpochFilter(run, policy)
    metrics = rule.after(3)
    assert epoch_set(run.order, 1) == {"q1", "q2", "q4"}
    assert {k.removeprefix("select/"): v for k, v in metrics.items()} == {
        "kept": 3, "solved": 1, "hopeless": 1, "thinned": 0, "returned": 0, "failed": 0, "cut": 0, "mean_p": pytest.approx(0.4),
    }  # fmt: skip
    policy.p |= {"q0": 0.3, "q1": 0.9}
    assert rule.after(5)["select/returned"] == 1
    assert epoch_set(run.order, 2) == {"q0", "q2", "q4"}
    assert [names for _, names in policy.asked] == [["q0", "q1", "q2", "q3", "q4"]] * 2


def test_shrinking_looks_at_the_rows_of_the_epoch_before(tmp_path: Path) -> None:
    run = session(tmp_path, 4, "data.filter.shrink=on")
    policy = Policy({"q0": 0.0, "q1": 0.4, "q2": 0.7, "q3": 0.8})
    rule = EpochFilter(run, policy)
    rule.after(2)
    policy.p |= {"q0": 0.5, "q1": 0.9}
    rule.after(3)
    assert policy.asked[1] == (3, ["q1", "q2"])
    assert epoch_set(run.order, 2) == {"q2"}


def test_nothing_happens_inside_an_epoch_or_after_the_last(tmp_path: Path) -> None:
    run = session(tmp_path, 4, "train.epochs=2")
    policy = Policy(dict.fromkeys(["q0", "q1", "q2", "q3"], 0.5))
    rule = EpochFilter(run, policy)
    assert [bool(rule.after(step)) for step in (1, 2, 3, 4)] == [False, True, False, False]
    assert run.order.finished(4)


def test_every_other_epoch(tmp_path: Path) -> None:
    run = session(tmp_path, 4, "data.filter.every=2")
    policy = Policy({"q0": 0.0, "q1": 0.4, "q2": 0.5, "q3": 0.9})
    rule = EpochFilter(run, policy)
    assert [rule.after(step) != {} for step in (2, 4, 5)] == [False, True, False]
    assert [len(chosen) for chosen in run.order.sets] == [4, 4, 2, 2]
    again = session(tmp_path, 4, "data.filter.every=2")
    EpochFilter(again, Policy({})).restore(5)
    assert again.order.sets == run.order.sets


def test_easy_to_hard(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 'q0' states no difficulty"):
        session(tmp_path, 4, "data.filter.order=easy_to_hard")
    run = session(tmp_path, 4)
    train = tuple(replace(s, meta={"difficulty": d}) for s, d in zip(rows(4), (20, 50, 0, 90), strict=True))
    keys = ["train.epochs=9", "train.batch=2", "data.filter.order=easy_to_hard"]
    p = {"q0": 0.5, "q1": 0.1, "q2": 0.6, "q3": 1.0}
    for every, sets in ((1, [(3, 1, 0, 2), (2, 0, 1)]), (2, [(3, 1, 0, 2), (3, 1, 0, 2), (2, 0, 1)])):
        recipe = load_recipe(GrpoRecipe, overrides=[*keys, f"data.filter.every={every}"])
        run.recipe, run.train, run.order = recipe, train, make_order(recipe, train)
        rule = EpochFilter(run, Policy(dict(p)))
        for step in range(2, 2 * every + 1):
            rule.after(step)
        assert run.order.sets == sets


def test_a_clip_that_cannot_be_opened_is_counted_and_left_out(tmp_path: Path) -> None:
    run = session(tmp_path, 3, "data.filter.above=-1", "data.filter.up_to=1")
    metrics = EpochFilter(run, Policy({"q0": 0.0, "q1": None, "q2": 1.0})).after(2)
    assert (metrics["select/kept"], metrics["select/failed"], metrics["select/mean_p"]) == (2, 1, 0.5)
    lines = [json.loads(line) for line in (tmp_path / "select" / "epoch_2.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "epoch": 2, "step": 2, "candidates": 3, "kept": 2, "solved": 0, "hopeless": 0, "thinned": 0, "returned": 0, "failed": 1,
    }  # fmt: skip
    assert lines[1:] == [
        {"id": "q0", "p": 0.0, "place": 1}, {"id": "q1", "p": None, "place": None, "error": "damaged"}, {"id": "q2", "p": 1.0, "place": 0},
    ]  # fmt: skip


@pytest.mark.parametrize(("empty", "sets"), [("stop", [3]), ("keep", [3, 3])])
def test_when_every_row_is_solved_or_hopeless(tmp_path: Path, empty: str, sets: list[int], caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("vtgrl").addHandler(caplog.handler)
    run = session(tmp_path, 3, f"data.filter.empty={empty}")
    EpochFilter(run, Policy({"q0": 0.0, "q1": 0.9, "q2": 1.0})).after(2)
    assert [len(chosen) for chosen in run.order.sets] == sets
    assert run.order.finished(2) == (empty == "stop")
    assert f"data.filter.empty={empty}" in caplog.text
    again = session(tmp_path, 3, f"data.filter.empty={empty}")
    EpochFilter(again, Policy({})).restore(2)
    assert (again.order.sets, again.order.finished(2)) == (run.order.sets, empty == "stop")
    logging.getLogger("vtgrl").removeHandler(caplog.handler)


def test_answers_that_are_cut_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R8: a cap of 20 tokens holds no thinking and answer; every row then looks hopeless."""
    logging.getLogger("vtgrl").addHandler(caplog.handler)
    metrics = EpochFilter(session(tmp_path, 2), Policy({"q0": 0.0, "q1": 0.0}, finish="length")).after(1)
    logging.getLogger("vtgrl").removeHandler(caplog.handler)
    assert metrics["select/cut"] == 2
    assert "2 of 2 answers were cut at validation.max_tokens=1024" in caplog.text


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["validation.max_tokens=20"], "validation.max_tokens: 20 is below rollout.sampling.max_tokens = 1024"),
        (["validation.temperature=0.5"], "judges rows by greedy answers"),
        (["data.filter.above=0.7"], "is not below data.filter.up_to"),
        (["train.epochs=1"], "leaves no epoch to filter"),
    ],
)
def test_a_recipe_that_contradicts_the_filter_is_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe(GrpoRecipe, overrides=["data.filter.every=1", "train.epochs=2", *keys])


def test_other_tasks_are_refused_before_the_first_step() -> None:
    recipe = load_recipe(GrpoRecipe, overrides=["data.filter.every=1", "train.epochs=2"])
    with pytest.raises(DataError, match=r"row 'q1' \(task 'qa'\) has no true window"):
        make_order(recipe, [rows(1)[0], replace(rows(2)[1], task="qa", windows=())])


def filtered(folder: Path, *, upto: int = 2) -> Any:
    """A session whose epochs up to `upto` filterings have been given their rows; batch 2, 4 rows, 2 kept: steps 2, 3, 4."""
    run = session(folder, 4)
    rule = EpochFilter(run, Policy({"q0": 0.0, "q1": 0.4, "q2": 0.5, "q3": 0.9}))
    for k in range(upto):
        rule.after(2 + k)
    return run


def test_files_are_read_again(tmp_path: Path) -> None:
    whole = filtered(tmp_path)
    for step, sets in ((1, 1), (2, 2), (3, 3)):
        shutil.copytree(tmp_path, tmp_path / f"at{step}", ignore=shutil.ignore_patterns("at*"))
        again = session(tmp_path / f"at{step}", 4)
        EpochFilter(again, Policy({})).restore(step)
        assert again.order.sets == whole.order.sets[:sets]
        left = sorted(p.name for p in (tmp_path / f"at{step}" / "select").iterdir())
        assert left == [f"epoch_{k}.jsonl" for k in range(2, sets + 1)]  # those of the branch that was left are gone


def test_an_epoch_that_was_not_filtered_before_the_stop_is_filtered_now(tmp_path: Path) -> None:
    run = session(tmp_path, 4)
    EpochFilter(run, Policy({"q0": 0.0, "q1": 0.4, "q2": 0.5, "q3": 0.9})).restore(2)
    assert run.order.sets == filtered(tmp_path / "other", upto=1).order.sets


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", r"epoch_2.jsonl: missing, and the epoch has begun"),
        ("step", r"began after step 7, by this recipe after 2"),
        ("row", r"row 'q9' is not among the training rows"),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(tmp_path: Path, damage: str, message: str) -> None:
    filtered(tmp_path)
    path = tmp_path / "select" / "epoch_2.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"step": 2', '"step": 7') if damage == "step" else text.replace("q1", "q9"))
    if damage == "missing":
        path.unlink()
    with pytest.raises(ConfigError, match=message):
        EpochFilter(session(tmp_path, 4), Policy({})).restore(8 if damage == "step" else 3)


# --- whole runs -------------------------------------------------------------------------------------------------------------


KEYS = (
    "rollout.n=2", "rollout.sampling.max_tokens=20", "validation.max_tokens=20", "train.batch=8", "train.epochs=3", "model.freeze=[]",
    "optim.lr=3e-4", "optim.schedule=linear", "data.filter.every=1", "data.filter.k=10", "train.save_every=1", "train.keep_last=99",
    "log.samples=99", "zero.stage=2", "reward=[iou]",
)  # fmt: skip


@pytest.fixture(scope="module")
def recipe(taught_dir: Path, world_dir: Path) -> GrpoRecipe:
    return grpo_recipe(taught_dir, world_dir, *KEYS)


@pytest.fixture(scope="module")
def unbroken(recipe: GrpoRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("filtered") / "run"
    run_grpo(recipe, run_dir=run_dir)
    return run_dir


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kept(run_dir: Path, epoch: int) -> list[str]:
    found = [row for row in lines(run_dir / "select" / f"epoch_{epoch}.jsonl")[1:] if row["place"] is not None]
    return [row["id"] for row in sorted(found, key=lambda row: row["place"])]


def numbers(run_dir: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in lines(run_dir / "metrics.jsonl")]


def trained_on(run_dir: Path) -> dict[int, list[str]]:
    """step -> ids, from samples.jsonl."""
    out: dict[int, list[str]] = {}
    for row in lines(run_dir / "samples.jsonl"):
        out.setdefault(row["step"], []).append(row["id"])
    return out


def test_three_epochs_train_on_what_the_filter_kept(unbroken: Path) -> None:
    by_step = trained_on(unbroken)
    steps, metrics = [3], {row["step"]: row for row in lines(unbroken / "metrics.jsonl")}
    assert len({name for step in (1, 2, 3) for name in by_step[step]}) == 24
    for epoch in (2, 3):
        header, *rows = lines(unbroken / "select" / f"epoch_{epoch}.jsonl")
        wanted = kept(unbroken, epoch)
        inside = [row for row in rows if 0 < row["p"] <= 0.7]
        assert 0 < len(wanted) == min(10, len(inside))
        assert {row["id"] for row in inside} >= set(wanted)
        assert header["candidates"] == len(rows) == 24
        assert header["step"] == sum(steps)
        assert metrics[sum(steps)]["select/kept"] == len(wanted)
        steps.append(-(-len(wanted) // 8))
        here = range(sum(steps[:-1]) + 1, sum(steps) + 1)
        assert sorted(name for step in here for name in by_step[step]) == sorted(wanted)
    assert len(metrics) == sum(steps)
    assert metrics[sum(steps)]["epoch"] == 3
    assert metrics[1]["lr"] == pytest.approx(3e-4)
    assert json.loads((unbroken / "summary.json").read_text())["steps"] == sum(steps)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_resume_equals_the_unbroken_run(recipe: GrpoRecipe, unbroken: Path, tmp_path: Path, step: int) -> None:
    """Inside the first epoch, at its end, and inside the second; the last lines and later files are there, as after a kill."""
    run_dir = tmp_path / "run"
    shutil.copytree(unbroken, run_dir, ignore=shutil.ignore_patterns("model", "summary.json"))
    for path in (run_dir / "ckpt").glob("step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)
    if step == 3:  # stopped before the filter ran
        (run_dir / "select" / "epoch_2.jsonl").unlink()
    run_grpo(recipe, run_dir=run_dir, resume="auto")
    ours, theirs = numbers(run_dir), numbers(unbroken)
    assert ours == theirs
    assert trained_on(run_dir) == trained_on(unbroken)
    assert [kept(run_dir, k) for k in (2, 3)] == [kept(unbroken, k) for k in (2, 3)]


RANKS = """
import sys
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.train.grpo import run_grpo

run_grpo(load_recipe(GrpoRecipe, file=sys.argv[1]), run_dir=sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_ranks_choose_the_same_rows(recipe: GrpoRecipe, unbroken: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe))
    (tmp_path / "train.py").write_text(RANKS)
    run_ranks(tmp_path / "train.py", tmp_path / "recipe.yaml", tmp_path / "run", ranks=2)
    for epoch in (2, 3):
        assert kept(tmp_path / "run", epoch) == kept(unbroken, epoch)
        ours, theirs = (lines(folder / "select" / f"epoch_{epoch}.jsonl") for folder in (tmp_path / "run", unbroken))
        assert ours == theirs


def test_an_untaught_model_ends_after_the_first_epoch(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """Nothing it says is an answer: all rows are hopeless. There is a model all the same, and resuming says the same."""
    keys = ("data.limit=4", "data.filter.every=1", "train.epochs=3", "train.batch=2", "validation.max_tokens=12")
    rewards = f"reward=[{Path(__file__).parent / 'rewards.py'}:token_parity]"
    run = grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, *keys, rewards)
    summary = run_grpo(run, run_dir=tmp_path / "run")
    assert summary["steps"] == 2
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert summary["metrics"]["select/hopeless"] == 4
    again = run_grpo(run, run_dir=tmp_path / "run", resume="auto")
    assert again["steps"] == 2


def test_a_dry_run_says_what_is_drawn_and_filtered(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (world_dir / "world.jsonl").read_text().splitlines()]
    rated = tmp_path / "rated.jsonl"
    rated.write_text("".join(json.dumps({**row, "meta": {"difficulty": 4 * i}}) + "\n" for i, row in enumerate(rows)))
    keys = ("data.select.k=9", "data.filter.every=1", "train.epochs=3", "train.batch=4", f"data.path={rated}", f"data.videos={world_dir}")
    report = plan(grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, *keys), kind="grpo", world_size=1)
    assert report.data["data.select"] == "9 of 24 rows, by their difficulty"
    assert report.steps == 3 * 3
    assert "data.filter: later epochs train on fewer rows, so the run may have fewer steps" in report.notes


def test_sft_is_filtered_too(taught_dir: Path, world_dir: Path, tmp_path: Path) -> None:
    keys = ("train.batch=12", "train.epochs=2", "data.filter.every=1", "data.filter.up_to=0.5", "validation.max_tokens=20")
    summary = run_sft(sft_recipe(taught_dir, world_dir, *keys), run_dir=tmp_path / "run")
    wanted = kept(tmp_path / "run", 2)
    assert 0 < len(wanted) < 24
    assert summary["steps"] == 2 + -(-len(wanted) // 12)
    assert numbers(tmp_path / "run")[-1]["rows"] == (len(wanted) - 1) % 12 + 1
