"""Bench results as one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vtgrl.bench.table import table
from vtgrl.core.errors import DataError

RESULT = {"bench": "b", "ratio": 6.254, "exactness": 2e-7, "unit": "FLOPs", "baseline": "the usual way", "details": {}}


def test_one_row_a_bench_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps(RESULT))
    (tmp_path / "a.json").write_text(json.dumps(RESULT | {"bench": "a", "exactness": 0.0}))
    (tmp_path / "a.log").write_text("not a result")
    assert table(tmp_path).splitlines() == [
        "| bench | ratio | of | difference | compared with |",
        "| --- | --- | --- | --- | --- |",
        "| a | 6.25x | FLOPs | 0.0e+00 | the usual way |",
        "| b | 6.25x | FLOPs | 2.0e-07 | the usual way |",
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"bench": "a"}'])
def test_other_files_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(DataError, match=r"odd\.json"):
        table(tmp_path)
