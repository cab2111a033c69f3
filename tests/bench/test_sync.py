"""Weights from two ZeRO-3 ranks to an engine: bit-equal, and never the whole model at once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from vtgrl.core.errors import RunError

MIB = 2**20


def run(*overrides: str) -> dict[str, Any]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "vtgrl", "bench", "sync", "--json", "hidden=256", "layers=2", "bucket_mb=1", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode:
        raise RunError(done.stderr[-2000:])
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_bucket_at_a_time_and_frozen_weights_once() -> None:
    found = run("freeze=[vision, embed, lm_head]")
    details = found["details"]
    assert found["exactness"] == 0.0
    assert found["ratio"] > 1.5
    whole = details["weights_bytes"]
    assert details["gathered_bytes"]["at_once"] == {"first": whole, "later": whole}
    assert details["gathered_bytes"]["ours"]["first"] == whole
    assert details["gathered_bytes"]["ours"]["later"] <= whole - 2 * 1024 * 256 * 4  # without embedding and head at least
    assert details["whole_at_once_bytes"]["at_once"] == whole
    assert details["whole_at_once_bytes"]["ours"] <= MIB


@pytest.mark.slow
def test_a_rank_that_fails_is_one_line() -> None:
    with pytest.raises(RunError, match=r"'nothing\*' matches no parameter(?s:.*)a rank ended with exit code 1"):
        run("freeze=['nothing*']")
