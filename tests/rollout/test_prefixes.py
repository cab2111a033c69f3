"""Answers that begin with given tokens: ragged in a group, counted in the answer's length, without log-probs (taro.md 3.3, T13, T14)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rollout_kit import FAMILIES, SAMPLING, Kit, check_prefixed, ids, parity, prefer, some_prefixes

from vtgrl.core.errors import DataError
from vtgrl.core.jsonl import to_line
from vtgrl.core.types import Completion
from vtgrl.rollout.limits import member_prefixes
from vtgrl.rollout.records import Record, from_record, to_record

N = 4
LONG = replace(SAMPLING, max_tokens=40)


@pytest.fixture(params=FAMILIES)
def kit(request: pytest.FixtureRequest, make_kit: Callable[..., Kit]) -> Kit:
    return make_kit(request.param)


@pytest.fixture
def video_kit(make_kit: Callable[..., Kit]) -> Kit:
    return make_kit("qwen2_5_vl")


def test_answers_go_on_from_their_prefixes(kit: Kit) -> None:
    prefer(kit.policy, min(kit.builder.eos_ids), by=0.1)
    given = some_prefixes(kit, N)
    assert len({len(p) for group in given for p in group}) == 4
    out = kit.engine("hf").generate(kit.prompts, n=N, sampling=LONG, seed=1, version=0, prefixes=given)
    check_prefixed(kit, out, given, most=40)
    assert parity(kit.policy, kit.prompts, out) <= 1e-5


def test_no_prefix_anywhere_is_the_draw_of_before_bit_for_bit(video_kit: Kit) -> None:
    engine, empty = video_kit.engine("hf"), [[()] * N] * 3
    plain = engine.generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0)
    assert engine.generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0, prefixes=empty) == plain
    assert all(c.given == 0 for group in plain for c in group)


def test_free_answers_do_not_see_the_prefixes_beside_them(video_kit: Kit) -> None:
    engine, given = video_kit.engine("hf"), some_prefixes(video_kit, N)
    plain = engine.generate(video_kit.prompts, n=N, sampling=LONG, seed=1, version=0)
    mixed = engine.generate(video_kit.prompts, n=N, sampling=LONG, seed=1, version=0, prefixes=given)
    checked = 0
    for group, alone, prefixes in zip(mixed, plain, given, strict=True):
        for c, other, prefix in zip(group, alone, prefixes, strict=True):
            assert prefix or c.token_ids == other.token_ids
            checked += not prefix
    assert checked == 3


def test_an_answer_from_its_own_beginning_is_the_same_answer(video_kit: Kit) -> None:
    """Greedy: the first tokens of the free answer as its prefix change nothing; every member gets its own continuation."""
    engine, cold = video_kit.engine("hf"), replace(LONG, temperature=0.0)
    free = engine.generate(video_kit.prompts, n=1, sampling=cold, seed=1, version=0)
    given = [[c.token_ids[:k] for k in (0, 1, 7, 20)] for (c,) in free]
    out = engine.generate(video_kit.prompts, n=N, sampling=cold, seed=1, version=0, prefixes=given)
    for (whole,), group in zip(free, out, strict=True):
        for c in group:
            assert c.token_ids == whole.token_ids
            assert c.logprobs[c.given :] == pytest.approx(whole.logprobs[c.given :], abs=1e-5)


def test_an_end_token_that_was_given_ends_nothing(video_kit: Kit) -> None:
    end = min(video_kit.builder.eos_ids)
    given = [[(end, end, 7)] * N] * 3
    out = video_kit.engine("hf").generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0, prefixes=given)
    assert all(len(c.token_ids) > 3 for group in out for c in group)


def test_a_prefix_that_fills_the_answer_is_named(video_kit: Kit) -> None:
    """T13: nothing would be left for the model."""
    given = [[tuple(range(20, 20 + SAMPLING.max_tokens))] * N] * 3
    with pytest.raises(DataError, match=rf"row {video_kit.prompts[0].sample.id}: its prefix has 16 tokens and an answer at most 16"):
        video_kit.engine("hf").generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0, prefixes=given)
    prompt: Any = SimpleNamespace(sample=SimpleNamespace(id="a"))
    assert member_prefixes(prompt, [(1,), ()], n=2, limit=2) == [(1,), ()]
    assert member_prefixes(prompt, None, n=2, limit=2) == [(), ()]


def test_a_prefix_and_its_prompt_are_never_cut_anew(video_kit: Kit) -> None:
    """Where prompt and prefix meet, their ids are those of the joint text here (the chat's last newline and the tag are tokens of
    their own); where the model goes on they need not be: a word may be cut elsewhere. So ids go through, never text."""
    builder, prompt = video_kit.builder, video_kit.prompts[0]
    prefix = "<think>\nWhat is sought: it."
    assert builder.encode(prompt.text + prefix) == builder.encode(prompt.text) + builder.encode(prefix)
    assert builder.encode("visible") != builder.encode("visi") + builder.encode("ble")


def test_records_keep_what_was_given() -> None:
    answer = Completion((5, 6, 2), (math.nan, -1.25, -3.0), "red", "stop", 4, given=1)
    row = json.loads(to_line(to_record(Record("s", 4, (answer,)))))
    assert row["completions"][0]["given"] == 1
    back = from_record(row, where="f:1").completions[0]
    assert (back.given, back.token_ids, back.logprobs[1:]) == (1, (5, 6, 2), (-1.25, -3.0))
    assert math.isnan(back.logprobs[0])
    del row["completions"][0]["given"]  # written before there were prefixes
    assert from_record(row, where="f:1").completions[0].given == 0
    for wrong in (3, -1):
        row["completions"][0]["given"] = wrong
        with pytest.raises(DataError, match=f"f:1: .*'given' is {wrong} of 3 tokens"):
            from_record(row, where="f:1")


def test_replay_takes_recorded_prefixes_and_refuses_others(video_kit: Kit, tmp_path: Path) -> None:
    given = some_prefixes(video_kit, N)
    out = video_kit.engine("hf").generate(video_kit.prompts, n=N, sampling=LONG, seed=1, version=0, prefixes=given)
    path = tmp_path / "samples.jsonl"
    path.write_text(
        "".join(to_line(to_record(Record(p.sample.id, 1, tuple(g), p.input_ids))) for p, g in zip(video_kit.prompts, out, strict=True))
    )
    engine = video_kit.engine("replay", path=str(path))
    for asked in (given, None):
        back = engine.generate(video_kit.prompts, n=N, sampling=LONG, seed=1, version=0, prefixes=asked)
        assert ids(back) == ids(out)
        assert [[c.given for c in g] for g in back] == [[len(p) for p in g] for g in given]
    with pytest.raises(DataError, match=rf"sample {video_kit.prompts[0].sample.id!r}: answer 1 was recorded with another prefix"):
        engine.generate(video_kit.prompts, n=N, sampling=LONG, seed=1, version=0, prefixes=[[given[0][0], *given[1][1:]], *given[1:]])
