"""Recorded answers: written by the trainer, read back by the replay engine."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vtgrl.core import registry
from vtgrl.core.errors import ConfigError, DataError, RunError
from vtgrl.core.jsonl import to_line
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion, Sample
from vtgrl.model.types import Prompt
from vtgrl.rollout.protocol import EngineContext, RolloutEngine
from vtgrl.rollout.records import Record, from_record, to_record

ANSWER = Completion((5, 6, 2), (-0.5, -1.25, -3.0), "red square", "stop", 4)
SAMPLING = SamplingConfig()


def prompt_of(sample_id: str, ids: tuple[int, ...] = (1, 2, 3)) -> Prompt:
    positions = torch.arange(len(ids)).expand(3, -1)
    return Prompt(Sample(sample_id, "text", "?"), "?", ids, (), torch.empty(0, dtype=torch.int64), positions, len(ids), 0.0)


def replay(path: Path, **settings: Any) -> RolloutEngine:
    entry = registry.get("engine", "replay")
    engine: RolloutEngine = entry.fn(EngineContext("", None, None, "fp32", 100), config=entry.config(path=str(path), **settings))
    return engine


def write(path: Path, *records: Record, **extra: Any) -> Path:
    path.write_text("".join(to_line({**to_record(r), **extra}) for r in records))
    return path


def test_records_come_back_equal(tmp_path: Path) -> None:
    record = Record("s1", 4, (ANSWER, replace(ANSWER, finish="length")), (1, 2, 3))
    assert from_record(json.loads(to_line(to_record(record))), where="f:1") == record
    bare = Record("s1", 4, (ANSWER,))
    assert from_record({**to_record(bare), "rewards": [1.0]}, where="f:1") == bare


def test_a_log_prob_that_the_sampler_did_not_give_stays_unknown() -> None:
    record = Record("s", 0, (replace(ANSWER, logprobs=(-0.5, math.nan, -math.inf)),))
    row = json.loads(to_line(to_record(record)))
    assert row["completions"][0]["logprobs"] == [-0.5, None, None]
    back = from_record(row, where="f:1").completions[0].logprobs
    assert back[0] == -0.5
    assert math.isnan(back[1])
    assert math.isnan(back[2])


def broken(**changes: Any) -> dict[str, Any]:
    row = to_record(Record("s", 0, (ANSWER,)))
    for key, value in changes.items():
        target = row if key in row else row["completions"][0]
        if value is None:
            del target[key]
        else:
            target[key] = value
    return row


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": None}, "f:9: no 'step'"),
        ({"id": 3}, "f:9: 'id' must be str, got int"),
        ({"token_ids": None}, r"f:9: completions\[0\]: no 'token_ids'"),
        ({"token_ids": [1, "x", 2]}, "'token_ids' must be a list of token ids"),
        ({"token_ids": []}, "0 token_ids and 3 logprobs"),
        ({"logprobs": [-1.0]}, "3 token_ids and 1 logprobs"),
        ({"logprobs": [-1.0, "a", 0.0]}, "numbers or null"),
        ({"finish": "abort"}, "stop or length, got 'abort'"),
        ({"completions": [7]}, "expected an object, got int"),
    ],
)
def test_a_wrong_row_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_record(broken(**changes), where="f:9")


def test_replay_gives_the_first_n_with_their_versions(tmp_path: Path) -> None:
    other = replace(ANSWER, text="blue", policy_version=2)
    engine = replay(write(tmp_path / "samples.jsonl", Record("a", 3, (ANSWER, other)), Record("b", 3, (other, other), (1, 2, 3))))
    out = engine.generate([prompt_of("b"), prompt_of("a")], n=1, sampling=SAMPLING, seed=0, version=0)
    assert out == [[other], [ANSWER]]
    engine.publish(None, version=1)
    assert engine.version == 1
    assert engine.generate([prompt_of("a")], n=2, sampling=SAMPLING, seed=9, version=1) == [[ANSWER, other]]
    with pytest.raises(RunError, match="version 1, not 0"):
        engine.generate([], n=1, sampling=SAMPLING, seed=0, version=0)
    engine.close()


def test_the_last_row_of_a_sample_counts_or_that_of_a_step(tmp_path: Path) -> None:
    later = replace(ANSWER, text="later")
    path = write(tmp_path / "s.jsonl", Record("a", 1, (ANSWER,)), Record("a", 2, (later,)))
    assert replay(path).generate([prompt_of("a")], n=1, sampling=SAMPLING, seed=0, version=0) == [[later]]
    assert replay(path, step=1).generate([prompt_of("a")], n=1, sampling=SAMPLING, seed=0, version=0) == [[ANSWER]]
    with pytest.raises(DataError, match="no recorded answers of step 7"):
        replay(path, step=7)


def test_replay_refuses_what_it_does_not_have(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", Record("a", 1, (ANSWER,), (1, 2, 3)))
    engine = replay(path)
    with pytest.raises(DataError, match=r"s\.jsonl: no recorded answers for sample 'zz'"):
        engine.generate([prompt_of("zz")], n=1, sampling=SAMPLING, seed=0, version=0)
    with pytest.raises(DataError, match="'a' has 1 recorded answers, 2 are needed"):
        engine.generate([prompt_of("a")], n=2, sampling=SAMPLING, seed=0, version=0)
    with pytest.raises(DataError, match=r"recorded with another prompt \(3 tokens, now 2\)"):
        engine.generate([prompt_of("a", (1, 2))], n=1, sampling=SAMPLING, seed=0, version=0)
    path.write_text(path.read_text() + '{"id": "b"}\n')
    with pytest.raises(DataError, match=r"s\.jsonl:2: no 'completions'"):
        replay(path)
    with pytest.raises(ConfigError, match=r"rollout\.engine\.path"):
        registry.get("engine", "replay").fn(EngineContext("", None, None, "fp32", 100), config=registry.get("engine", "replay").config())
