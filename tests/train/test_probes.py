"""The extra pass of probes: its numbers against one-by-one scoring of the really changed clip, its cost, its rank-independence.

Answers are replayed, so that their text is known: with and without a think block, with a prefix, cut off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.kit import grpo_recipe, run_ranks
from vtgrl.core.jsonl import to_line
from vtgrl.core.recipe import dump_recipe
from vtgrl.core.types import Completion, Sample
from vtgrl.model.guard import score_alone
from vtgrl.model.slices import Variant
from vtgrl.model.types import Prompt
from vtgrl.rollout.records import Record, to_record
from vtgrl.train.grpo import Grpo, run_grpo
from vtgrl.train.probes import Probes
from vtgrl.train.rollouts import Rollouts
from vtgrl.train.session import Session, open_session

REWARDS = "reward=[{name: iou, form: vtgrl}, {name: temporal_sensitivity, threshold: group_mean}]"
DRAW, PLAIN, CUT, PREFIXED = range(4)
RANK_SCRIPT = """
import sys
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.train.grpo import run_grpo

run_grpo(load_recipe(GrpoRecipe, file=sys.argv[1]), run_dir=sys.argv[2])
"""
SAMPLED = -3.5
"""What the replayed sampler says of every token that it drew."""


def completions(tokenizer: Any, window: tuple[float, float]) -> tuple[Completion, ...]:
    """A right answer with a think block, one without, one that was cut inside it, one that begins with given tokens."""
    right = f"<answer>{window[0]:.2f}s to {window[1]:.2f}s</answer>"
    texts = [
        f"<think>I see it at 3.5 s: 猫.</think>{right}",
        f"It is there.{right}",
        "<think>It goes on and",
        f"<think>The square moves. It is</think>{right}",
    ]
    out = []
    for i, text in enumerate(texts):
        ids = tuple(tokenizer(text)["input_ids"]) + (() if i == CUT else (tokenizer.eos_token_id,))
        given = len(tokenizer("<think>The square moves.")["input_ids"]) if i == PREFIXED else 0
        logp = (math.nan,) * given + (SAMPLED,) * (len(ids) - given)
        out.append(Completion(ids, logp, text, "length" if i == CUT else "stop", 0, given))
    return tuple(out)


@pytest.fixture(scope="module")
def replay(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_dir("qwen2_5_vl"))
    path = tmp_path_factory.mktemp("probes") / "answers.jsonl"
    rows = [json.loads(line) for line in (world_dir / "world.jsonl").read_text().splitlines()]
    path.write_text("".join(to_line(to_record(Record(r["id"], 0, completions(tokenizer, tuple(r["windows"][0]))))) for r in rows))
    return path


@pytest.fixture
def recipe(tiny_dir: Callable[[str], Path], world_dir: Path, replay: Path) -> Callable[..., Any]:
    def make(*overrides: str, family: str = "qwen2_5_vl") -> Any:
        engine = f"rollout.engine={{name: replay, path: {replay}}}"
        small = ("rollout.n=4", "rollout.sampling.max_tokens=64", "train.steps=2", "train.batch=3", "optim.lr=1e-4", "train.seed=7")
        return grpo_recipe(tiny_dir(family), world_dir, engine, REWARDS, *small, *overrides)

    return make


def drawn(recipe: Any, tmp_path: Path) -> tuple[Session, Rollouts]:
    session = open_session(recipe, run_dir=tmp_path / "run", resume=None)
    return session, Grpo(session)._draw(0, step_rows(session))


def step_rows(session: Session) -> list[Sample]:
    """The three rows of the first step."""
    return [session.train[i] for i in session.order.batch_at(0)]


def d_of(rollouts: Rollouts) -> list[float | None]:
    return [r.signals.get("probe:boundary_shuffle") for r in rollouts.rows]


def decoded_like_that(session: Session, prompt: Prompt) -> Prompt:
    """The changed clip as the processor makes it from the changed frames."""
    variant, builder = prompt.media[0], session.builder
    assert isinstance(variant, Variant)
    pixels, _, _ = builder.family.clip_inputs(builder.processor, variant.frames_THWC, variant.metadata)
    return replace(prompt, media=(replace(variant.base, id="changed", frames_THWC=variant.frames_THWC, pixel_values=pixels),))


def by_hand(session: Session, probes: Probes, rollouts: Rollouts, tokens: Callable[[Completion], range]) -> list[float | None]:
    """d of every row: whole sequences through the plain model, once with the true clip and once with the changed one."""
    out: list[float | None] = []
    policy = session.loaded.policy.eval()
    for g, group in enumerate(rollouts.groups):
        changed = [decoded_like_that(session, p) for p in probes._probe(probes.components[0], 0, group).prompts]
        for r in rollouts.rows_of(g):
            completion = rollouts.rows[r].completion
            chosen = list(tokens(completion))
            with torch.no_grad():
                true = score_alone(policy, group.prompt, completion.token_ids)
                other = torch.stack([score_alone(policy, p, completion.token_ids) for p in changed]).mean(0)
            out.append(float((true - other)[chosen].mean()) if chosen else None)
    return out


def reasoning(session: Session) -> Callable[[Completion], range]:
    """In these answers the think block's tags are tokens of their own."""
    ids = session.builder.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])

    def tokens(completion: Completion) -> range:
        own = completion.token_ids
        if ids[0] not in own:
            return range(0)
        return range(max(own.index(ids[0]) + 1, completion.given), own.index(ids[1]) if ids[1] in own else len(own))

    return tokens


def close(found: list[float | None], wanted: list[float | None], limit: float = 2e-5) -> bool:
    pairs = list(zip(found, wanted, strict=True))
    return all((a is None) == (b is None) and (a is None or b is None or abs(a - b) <= limit) for a, b in pairs)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("granularity", ["frame", "patch"])
def test_d_equals_one_by_one_scoring_of_the_changed_clip(recipe: Callable[..., Any], tmp_path: Path, family: str, granularity: str) -> None:
    probe = f"probes=[{{name: boundary_shuffle, baseline: trainer, granularity: {granularity}, permutations: 2}}]"
    session, rollouts = drawn(recipe(probe, family=family), tmp_path)
    probes = Probes(session)
    found = probes.run(0, rollouts)
    wanted = by_hand(session, probes, rollouts, reasoning(session))
    assert [d is None for d in wanted[:4]] == [False, True, False, False]
    assert close(d_of(found.rollouts), wanted)
    assert max(abs(d) for d in wanted if d is not None) > 1e-4
    assert found.metrics["probe/boundary_shuffle/no_tokens"] == 3.0
    mean = sum(d for d in wanted if d is not None) / 9
    assert found.metrics["probe/boundary_shuffle/d"] == pytest.approx(mean, abs=2e-5)


@pytest.mark.parametrize(("freeze", "slices"), [("[vision, merger]", "dirty"), ("[vision]", "all"), ("[]", "all")])
def test_a_trained_tower_gives_the_same_d(recipe: Callable[..., Any], tmp_path: Path, freeze: str, slices: str) -> None:
    session, rollouts = drawn(recipe("probes=[{name: boundary_shuffle, baseline: trainer}]", f"model.freeze={freeze}"), tmp_path)
    probes, vision = Probes(session), session.loaded.policy.vision
    found = probes.run(0, rollouts)
    variants = [p.media[0] for g in rollouts.groups for p in probes._probe(probes.components[0], 0, g).prompts]
    changed = sum(len(v.dirty) if slices == "dirty" else v.grid_thw[0] for v in variants if isinstance(v, Variant))
    assert vision.slices == changed + sum(g.prompt.media[0].grid_thw[0] for g in rollouts.groups)
    assert close(d_of(found.rollouts), by_hand(session, probes, rollouts, reasoning(session)))


def test_which_tokens_are_averaged(recipe: Callable[..., Any], tmp_path: Path) -> None:
    setting = "probes=[{{name: boundary_shuffle, baseline: trainer, tokens: {}}}]"
    session, rollouts = drawn(recipe(setting.format("reasoning")), tmp_path)
    own = reasoning(session)
    probes = Probes(session)
    whole_block = by_hand(session, probes, rollouts, lambda c: own(replace(c, given=0)))
    assert close(d_of(probes.run(0, rollouts).rollouts), whole_block)
    session, rollouts = drawn(recipe(setting.format("all")), tmp_path / "all")
    probes = Probes(session)
    everything = by_hand(session, probes, rollouts, lambda c: range(len(c.token_ids)))
    assert close(d_of(probes.run(0, rollouts).rollouts), everything)
    assert everything[PLAIN] is not None
    assert whole_block[PREFIXED] != everything[PREFIXED]


def test_the_samplers_own_log_probs_as_baseline(recipe: Callable[..., Any], tmp_path: Path) -> None:
    """Free: one pass instead of two. d differs from the trainer's by what the sampler's log-probs differ."""
    session, rollouts = drawn(recipe(), tmp_path)
    calls = count_forwards(session)
    found = d_of(Probes(session).run(0, rollouts).rollouts)
    assert (calls[0], found[PLAIN]) == (1, None)
    session, rollouts = drawn(recipe("probes=[{name: boundary_shuffle, baseline: trainer}]"), tmp_path / "trainer")
    calls = count_forwards(session)
    result = Probes(session).run(0, rollouts)
    assert calls[0] == 2
    assert result.old_logp_NT is not None
    for r, (ours, theirs) in enumerate(zip(found, d_of(result.rollouts), strict=True)):
        tokens = list(reasoning(session)(rollouts.rows[r].completion))
        if ours is not None and theirs is not None:
            gap = SAMPLED - float(result.old_logp_NT[r, tokens].double().mean())
            assert ours == pytest.approx(theirs + gap, abs=2e-5)


def test_a_token_without_a_baseline(recipe: Callable[..., Any], tmp_path: Path) -> None:
    """The sampler said nothing of one reasoning token: the row has no d, and is counted."""
    session, rollouts = drawn(recipe(), tmp_path)
    done = rollouts.rows[0].completion
    rollouts.rows[0] = replace(rollouts.rows[0], completion=replace(done, logprobs=(*done.logprobs[:2], math.nan, *done.logprobs[3:])))
    found = Probes(session).run(0, rollouts)
    assert d_of(found.rollouts)[0] is None
    assert found.metrics["probe/boundary_shuffle/no_baseline"] == 1.0


def count_forwards(session: Session) -> list[int]:
    calls = [0]
    forward = session.engine.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return forward(*args, **kwargs)

    session.engine.forward = counted  # type: ignore[method-assign]
    return calls


def test_the_pass_for_old_log_probs_is_shared(recipe: Callable[..., Any], tmp_path: Path) -> None:
    """Two passes over a batch need old log-probs: baseline `trainer` then costs nothing more than `sampler`."""
    calls = {}
    for baseline in ("sampler", "trainer"):
        made = recipe(f"probes=[{{name: boundary_shuffle, baseline: {baseline}}}]", "algo.epochs=2")
        session = open_session(made, run_dir=tmp_path / baseline, resume=None)
        counter = count_forwards(session)
        Grpo(session).step(0, step_rows(session))
        calls[baseline] = counter[0]
    assert calls == {"sampler": 4, "trainer": 4}  # probe, old log-probs, two updates


def test_no_reward_no_pass(recipe: Callable[..., Any], tmp_path: Path) -> None:
    session, rollouts = drawn(recipe("reward=[iou]"), tmp_path)
    calls = count_forwards(session)
    found = Probes(session).run(0, rollouts)
    assert (calls[0], found.rollouts is rollouts, found.metrics) == (0, True, {})


def test_groups_that_cannot_be_probed_are_counted(recipe: Callable[..., Any], tmp_path: Path) -> None:
    session, rollouts = drawn(recipe(), tmp_path)
    first = rollouts.groups[0]
    sample = replace(first.prompt.sample, windows=((100.0, 120.0),))
    rollouts.groups[0] = replace(first, prompt=replace(first.prompt, sample=sample))
    found = Probes(session).run(0, rollouts)
    assert d_of(found.rollouts)[:4] == [None] * 4
    assert sum(d is not None for d in d_of(found.rollouts)) == 6
    assert found.metrics["probe/boundary_shuffle/skipped"] == 1.0
    assert found.metrics["probe/boundary_shuffle/skipped/outside"] == 1.0
    assert 0 < found.metrics["probe/boundary_shuffle/coverage"] <= 1


def numbers(run_dir: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k.startswith(("probe/", "reward/"))} for row in rows]


def test_a_run_with_generated_answers(tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path) -> None:
    """A random model writes no think block: with `tokens: all` every row has a d; the hf engine's log-probs are the trainer's."""
    overrides = (REWARDS, "train.steps=2", "train.batch=2", "video.max_frames=8")
    for baseline in ("sampler", "trainer"):
        probe = f"probes=[{{name: boundary_shuffle, tokens: all, baseline: {baseline}}}]"
        run_grpo(grpo_recipe(tiny_dir("qwen3_vl"), world_dir, probe, *overrides), run_dir=tmp_path / baseline)
    ours, theirs = numbers(tmp_path / "sampler"), numbers(tmp_path / "trainer")
    assert ours[0]["probe/boundary_shuffle/d"] == pytest.approx(theirs[0]["probe/boundary_shuffle/d"], abs=2e-5)
    assert ours[0]["reward/temporal_sensitivity/above"] == theirs[0]["reward/temporal_sensitivity/above"]
    assert 0 < ours[0]["reward/temporal_sensitivity/above"] < 1
    assert ours[0]["reward/temporal_sensitivity/absent"] == 0.0
    samples = [json.loads(line) for line in (tmp_path / "sampler" / "samples.jsonl").read_text().splitlines()]
    assert len(samples[0]["signals"]) == 3
    assert all("probe:boundary_shuffle" in s for s in samples[0]["signals"])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_ranks_find_what_one_finds(recipe: Callable[..., Any], tmp_path: Path) -> None:
    """Three prompts on two ranks with ZeRO-3: one rank has two groups to probe, the other one."""
    made = recipe("train.tokens_per_micro_batch=1", "zero.stage=3", "zero.persistence_threshold=0", "optim.lr=0")
    run_grpo(made, run_dir=tmp_path / "one")
    (tmp_path / "recipe.yaml").write_text(dump_recipe(made))
    (tmp_path / "train.py").write_text(RANK_SCRIPT)
    run_ranks(tmp_path / "train.py", tmp_path / "recipe.yaml", tmp_path / "two", ranks=2)
    for ours, wanted in zip(numbers(tmp_path / "two"), numbers(tmp_path / "one"), strict=True):
        assert ours == pytest.approx(wanted, abs=1e-5)
        assert wanted["reward/temporal_sensitivity"] > 0
