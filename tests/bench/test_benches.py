"""Every bench at a small size: counted work is less, results are the same, the record is JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

import pytest

from vtgrl.bench.run import run_bench
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import get, names

SMALL = ("hidden=32", "layers=1")
CLIP = ("frames=4", "side=2")


def run(name: str, *overrides: str) -> dict[str, Any]:
    """The document that `--json` prints."""
    document = json.loads(json.dumps(asdict(run_bench(name, overrides=overrides))))
    assert list(document) == ["bench", "ratio", "exactness", "unit", "baseline", "details"]
    assert document["bench"] == name
    return document


def test_prefix() -> None:
    """Tokens of the rows below: 96 + 4 x 8 packed, 4 x (96 + 8) one by one."""
    found = run("prefix", *SMALL, *CLIP, "prompt=96", "answer=8", "answers=4", "repeats=1")
    details = found["details"]
    assert details["tokens"] == {"ours": 128, "one_by_one": 416}
    assert found["ratio"] == details["flops"]["one_by_one"] / details["flops"]["ours"] > 416 / 128
    assert 1 < details["flops_ratio"]["one_by_one_answer_logits"] < found["ratio"]
    assert details["flops_ratio"]["batch_answer_logits"] == details["flops_ratio"]["one_by_one_answer_logits"]
    assert details["tower_flops"]["one_by_one"] == 4 * details["tower_flops"]["ours"] > 0
    assert details["head_flops"]["one_by_one"] > details["head_flops"]["ours"] > 0
    assert set(details["seconds"]) == set(details["flops"]) == {"ours", *details["time_ratio"]}
    assert details["difference"]["logp"] <= 2e-5
    assert details["difference"]["gradient_relative"] <= 1e-5
    assert found["exactness"] == max(details["difference"].values())


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_vision_group(family: str) -> None:
    found = run("vision-group", *SMALL, *CLIP, f"family={family}", "answers=3", "answer=2")
    assert found["ratio"] == 3.0
    assert found["exactness"] == 0.0
    assert found["details"]["vision_tokens"] == 8
    assert found["details"]["tower_calls"] == {"ours": 1, "baseline": 3}
    assert found["details"]["tower_calls_with_a_reference_pass_and_a_frozen_tower"] == {"ours": 1, "baseline": 6}
    assert found["details"]["difference"]["logp"] <= 2e-5


def test_headskip() -> None:
    """Rows by hand; ours makes four products a row (logits, logits again, two gradients), the plain forward three."""
    found = run("headskip", *SMALL, "prompt=60", "answer=4", "repeats=1")
    details = found["details"]
    assert details["head_rows"] == {"ours": 4, "baseline": 64}
    row = 2 * 32 * details["vocabulary"]
    assert details["head_flops"] == {"ours": 4 * 4 * row, "baseline": 3 * 64 * row}
    assert found["ratio"] == 12.0
    assert found["exactness"] <= 1e-5


def test_packing() -> None:
    found = run("packing", *SMALL, "samples=5", "shortest=16", "longest=90", "answer=9", "row=120", "batch=2", "repeats=1")
    tokens = found["details"]["tokens"]
    assert tokens["ours"] < tokens["padded_by_length"] <= tokens["padded"]
    assert found["details"]["rows"] > 1
    assert found["ratio"] == found["details"]["flops_ratio_below_the_head"]["padded"] > tokens["padded"] / tokens["ours"] * 0.99
    assert found["exactness"] <= 1e-5
    with pytest.raises(ConfigError, match="shortest=50 is above longest=20"):
        run("packing", "shortest=50", "longest=20")


def test_one_by_one() -> None:
    found = run("one-by-one", *SMALL, "groups=[1, 3]", "answer=6")
    assert set(found["details"]) == {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "text"}
    assert found["ratio"] > 1
    for family in found["details"].values():
        assert 0 < family["logp"] <= 2e-5
        assert 0 < family["gradient_relative"] <= 1e-5
        assert 0 < family["guard"] <= 2e-5
        assert family["flops"]["ours"] < family["flops"]["baseline"]


@pytest.mark.slow
def test_logprob() -> None:
    """One chunk's logits at most are alive in ours, all of them several times in the plain way."""
    found = run("logprob", "rows=2048", "vocabulary=16384", "hidden=8", "repeats=1")
    peak, logits = found["details"]["peak_bytes"], 4 * 2048 * 16384
    assert peak["baseline"]["tracked"] >= 3 * logits
    assert peak["ours"]["tracked"] < 2 * logits
    assert found["ratio"] == peak["baseline"]["tracked"] / peak["ours"]["tracked"]
    assert found["exactness"] <= 1e-4
    assert found["details"]["flops_ratio"] == 3 / 4


@pytest.mark.slow
def test_group_memory_grows_with_tokens() -> None:
    found = run("group-memory", *SMALL, *CLIP, "prompt=300", "answer=4", "groups=[2, 8]")
    growth, rows = found["details"]["growth"], found["details"]["answers"]
    assert found["ratio"] == rows["8"]["baseline"]["tracked"] / rows["8"]["ours"]["tracked"] > 4
    assert rows["8"]["tokens"] == {"ours": 332, "baseline": 8 * 304}
    assert growth["answers"] == 4
    assert growth["ours"] <= 1.1 * growth["packed_tokens"] < 1.2
    assert growth["baseline"] > 3
    assert found["exactness"] <= 1e-5


def test_cli() -> None:
    found = run("cli", "repeats=1")
    assert found["details"]["torch_imported"] == {"ours": False, "baseline": True}
    assert found["details"]["modules"]["ours"] < found["details"]["modules"]["baseline"]
    assert found["ratio"] > 0
    assert found["exactness"] == 0.0


@pytest.mark.parametrize("name", names("bench"))
def test_every_bench_says_what_it_does_and_can_be_sized(name: str) -> None:
    entry = get("bench", name)
    assert entry.summary.endswith((".", "?"))
    assert entry.config.__dataclass_params__.frozen
    for field in fields(entry.config):
        assert field.metadata["help"], f"{name}: {field.name} has no help"
    entry.config()  # every key has a default
