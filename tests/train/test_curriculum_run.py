"""Whole runs with a curriculum: on one and two ranks, with both engines, resumed half-way, replayed (taro.md 3, T15, T17, T18)."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.train.kit import grpo_recipe, run_ranks
from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import to_line
from vtgrl.core.recipe import dump_recipe, load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Caption, Sample
from vtgrl.train.grpo import run_grpo
from vtgrl.train.prefixes import check_queries

REWARD = f"reward=[{Path(__file__).parent / 'rewards.py'}:token_parity]"
CURRICULUM = "curriculum={name: imitate_then_explore, warmup_epochs: 0.5, group_share: 0.75, budget: 0.9}"
SETTINGS = (
    REWARD,
    CURRICULUM,
    "data.prompt={name: taro, instruction: off}",
    "data.max_prompt_tokens=128",
    "rollout.n=4",
    "rollout.sampling.max_tokens=60",
    "train.batch=4",
    "train.steps=4",
    "train.save_every=1",
    "train.keep_last=9",
    "log.samples=99",
    "optim.lr=1e-4",
)
"""24 clips: the warm-up of half an epoch is three of the four steps."""

RANK_SCRIPT = """
import sys
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.train.grpo import run_grpo

run_grpo(load_recipe(GrpoRecipe, file=sys.argv[1]), run_dir=sys.argv[2])
"""


@pytest.fixture(scope="module")
def recipe(tiny_dir: Callable[[str], Path], world_dir: Path) -> Callable[..., GrpoRecipe]:
    return lambda *overrides: grpo_recipe(tiny_dir("qwen2_5_vl"), world_dir, *SETTINGS, *overrides)


@pytest.fixture(scope="module")
def whole(recipe: Callable[..., GrpoRecipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("curriculum") / "run"
    run_grpo(recipe(), run_dir=run_dir)
    return run_dir


def rows_of(run_dir: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def answers_of(run_dir: Path) -> dict[tuple[int, str], list[tuple[list[int], int]]]:
    """(step, sample) -> ids and number of given ones of each answer."""
    rows = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    return {(r["step"], r["id"]): [(c["token_ids"], c["given"]) for c in r["completions"]] for r in rows}


def prefixes_of(run_dir: Path) -> dict[tuple[int, str], list[list[int]]]:
    return {key: [ids[:given] for ids, given in group] for key, group in answers_of(run_dir).items()}


def test_the_warmup_prefixes_three_of_four_answers_and_then_none(whole: Path) -> None:
    rows = rows_of(whole)
    assert [r["curriculum/p"] for r in rows] == [1.0, 1.0, 1.0, 0.0]
    assert [r["curriculum/share"] for r in rows] == [0.75, 0.75, 0.75, 0.0]
    assert all(r["curriculum/captions"] >= 1 and r["curriculum/tokens"] > 20 for r in rows[:3])
    assert all(r["rollout/logp_missing"] == 0 and r["rollout/logp_diff_max"] < 1e-5 for r in rows)
    for group in answers_of(whole).values():
        assert all(len(ids) <= 60 for ids, _ in group)  # T14
    given = [[n > 0 for _, n in group].count(True) for (step, _), group in answers_of(whole).items() if step <= 3]
    assert given == [3] * 12


def test_prefixes_are_captions_of_the_clip_and_end_open(whole: Path, world_dir: Path) -> None:
    truth = {r["id"]: r for r in map(json.loads, (world_dir / "world.jsonl").read_text().splitlines())}
    rows = [json.loads(line) for line in (whole / "samples.jsonl").read_text().splitlines()]
    seen = 0
    for row in rows:
        for c in (c for c in row["completions"] if c["given"]):
            lines = c["text"].split("\n")
            assert lines[:2] == ["<think>", f"What is sought: {row['query']}"]
            captions = [f"From {x['start']:.2f}s to {x['end']:.2f}s, {x['text']}" for x in truth[row["id"]]["captions"]]
            assert any(lines[2].startswith(text) for text in captions)
            seen += 1
    assert seen == 36


def test_dropped_rows_are_counted_and_kept_ones_have_a_positive_advantage(whole: Path) -> None:
    rows = rows_of(whole)[:3]
    assert all(0 < r["curriculum/dropped"] < 1 and r["curriculum/adv_kept"] > 0 for r in rows)
    for row in rows:
        kept = row["trained_tokens"] / row["rows"]
        assert kept < row["answer/tokens"]  # they leave the normaliser


@pytest.mark.parametrize("step", [1, 2])
def test_resumed_in_the_middle_it_draws_the_same_curriculum(
    recipe: Callable[..., GrpoRecipe], whole: Path, tmp_path: Path, step: int
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir, ignore=shutil.ignore_patterns("model", "summary.json"))
    for later in range(step + 1, 5):
        shutil.rmtree(run_dir / "ckpt" / f"step_{later:06d}")
    run_grpo(recipe(), run_dir=run_dir, resume="auto")
    assert answers_of(run_dir) == answers_of(whole)
    ours, theirs = ([{k: v for k, v in r.items() if not k.startswith("time/")} for r in rows_of(d)] for d in (run_dir, whole))
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_ranks_draw_the_same_prefixes_and_train_the_same(recipe: Callable[..., GrpoRecipe], whole: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump_recipe(recipe("zero.stage=3", "zero.persistence_threshold=0")))
    (tmp_path / "train.py").write_text(RANK_SCRIPT)
    two = tmp_path / "run"
    run_ranks(tmp_path / "train.py", tmp_path / "recipe.yaml", two, ranks=2)
    assert prefixes_of(two) == prefixes_of(whole)
    first, reference = rows_of(two)[0], rows_of(whole)[0]
    for key in (
        "loss",
        "grad_norm",
        "curriculum/share",
        "curriculum/adv_kept",
        "curriculum/dropped",
        "curriculum/tokens",
        "trained_tokens",
    ):
        assert first[key] == pytest.approx(reference[key], rel=1e-5), key


def test_a_recorded_run_is_replayed_with_its_prefixes(recipe: Callable[..., GrpoRecipe], whole: Path, tmp_path: Path) -> None:
    """The gradient of the recorded answers is that of the run, with the curriculum or without one; and whatever the split."""
    one = ("train.steps=1", "train.save_every=0", f"rollout.engine={{name: replay, path: {whole / 'samples.jsonl'}, step: 1}}")
    for name, extra in {"same": (), "free": ("curriculum=none",), "split": ("train.tokens_per_micro_batch=1",)}.items():
        run_grpo(recipe(*one, *extra), run_dir=tmp_path / name)
        ours, theirs = rows_of(tmp_path / name)[0], rows_of(whole)[0]
        for key in ("loss", "grad_norm", "curriculum/dropped", "curriculum/adv_kept"):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5), (name, key)


@pytest.mark.parametrize("rule", ["clone", "awr", "raft", "none"])
@pytest.mark.parametrize("aggregate", ["seq_mean", "constant"])
def test_every_rule_trains_with_several_updates_a_batch_and_kl(
    recipe: Callable[..., GrpoRecipe], tmp_path: Path, rule: str, aggregate: str
) -> None:
    """T17: old log-probs are made when several updates need them; given tokens have no ratio anywhere."""
    overrides = ("algo.updates=2", "algo.kl.coef=0.01", f"algo.prefixed.rule={rule}", f"algo.aggregate={aggregate}", "train.steps=1")
    run_grpo(recipe(*overrides, "algo.prefixed.prefix_weight=0.5"), run_dir=tmp_path / "run")
    (row,) = rows_of(tmp_path / "run")
    assert row["grad_norm"] > 0
    assert row["skipped"] == 0
    assert (row["curriculum/dropped"] == 0) == (rule == "none")


def test_kl_in_the_reward_and_masked_prefixes(recipe: Callable[..., GrpoRecipe], tmp_path: Path) -> None:
    run_grpo(
        recipe("algo.kl={coef: 0.01, where: reward, kind: k1}", "algo.prefixed.prefix_weight=0", "train.steps=2"), run_dir=tmp_path / "run"
    )
    for row in rows_of(tmp_path / "run"):
        assert row["grad_norm"] > 0
        assert row["trained_tokens"] / row["rows"] < row["answer/tokens"] - 0.5 * row["curriculum/tokens"] * row["curriculum/share"]


def test_a_captioned_row_without_a_query_stops_the_run_before_it_begins() -> None:
    """T15: it does not become a free rollout in silence."""
    captions = (Caption(0.0, 1.0, "it moves"),)
    check_queries([Sample("a", "vtg", "when?", captions=captions), Sample("b", "vtg", "")])
    with pytest.raises(DataError, match="row c: has captions and no query"):
        check_queries([Sample("a", "vtg", "when?", captions=captions), Sample("c", "vtg", " ", captions=captions)])


def test_a_template_without_a_form_for_thoughts_is_refused(recipe: Callable[..., GrpoRecipe], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.prompt: 'direct' has no form for thoughts"):
        run_grpo(recipe("data.prompt=direct"), run_dir=tmp_path / "run")


def test_rows_without_captions_are_free(recipe: Callable[..., GrpoRecipe], world_dir: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (world_dir / "world.jsonl").read_text().splitlines()]
    path = tmp_path / "bare.jsonl"
    path.write_text("".join(to_line({**r, "captions": [] if i % 2 else r["captions"]}) for i, r in enumerate(rows)))
    run_grpo(recipe(f"data.path={path}", f"data.videos={world_dir}", "train.steps=1"), run_dir=tmp_path / "run")
    bare = {r["id"] for i, r in enumerate(rows) if i % 2}
    groups = prefixes_of(tmp_path / "run")
    assert {name for (_, name), group in groups.items() if any(group)} == {name for _, name in groups} - bare
    assert rows_of(tmp_path / "run")[0]["curriculum/share"] == 0.75 * len({n for _, n in groups} - bare) / len(groups)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.timeout(240)
def test_vllm_draws_with_the_same_prefixes(recipe: Callable[..., GrpoRecipe], whole: Path, tmp_path: Path) -> None:
    engine = "rollout.engine={name: vllm_colocate, kv_cache_gb: 0.2, max_num_seqs: 64}"
    run_grpo(recipe(engine, "train.steps=2"), run_dir=tmp_path / "run")
    prefixes = prefixes_of(tmp_path / "run")
    assert prefixes == {key: value for key, value in prefixes_of(whole).items() if key[0] <= 2}
    assert all(r["rollout/logp_diff_max"] < 1e-5 and r["rollout/logp_missing"] == 0 for r in rows_of(tmp_path / "run"))


def test_the_shipped_small_recipe_runs_whole(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """Curriculum and sensitivity reward together, as `tiny/taro` has them; the first step of it, on a random model."""
    overrides = [
        f"model.path={tiny_dir('qwen2_5_vl')}",
        f"data.path={world_dir / 'world.jsonl'}",
        "train.steps=1",
        "train.batch=2",
        "log.monitors=[]",
    ]
    run_grpo(load_recipe(GrpoRecipe, file="tiny/taro", overrides=overrides), run_dir=tmp_path / "run")
    (row,) = rows_of(tmp_path / "run")
    assert (row["curriculum/p"], row["curriculum/share"]) == (1.0, 0.75)
    assert row["answer/timed"] == 0.0  # the free answers of a random model
    assert any(key.startswith("probe/") for key in row), sorted(row)
