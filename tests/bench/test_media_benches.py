"""Benches of decoding and carrying media at a small size: counted work and exactness; no time is compared."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from vtgrl.bench.run import run_bench


def run(name: str, *overrides: str) -> dict[str, Any]:
    """The document that `--json` prints."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(run_bench(name, overrides=overrides))))
    assert found["bench"] == name
    return found


@pytest.mark.parametrize("backend", ["pyav", "decord"])
def test_decode(backend: str) -> None:
    """Five seconds at 30 a second: 10 of 150 frames are made RGB, and B-frames that nobody wants are not decoded."""
    found = run("decode", "seconds=5", "width=128", "height=96", "repeats=1", f"backend={backend}")
    details = found["details"]
    assert found["exactness"] == 0.0
    assert details["shape"][0] == 10
    assert details["rgb_frames"] == {"ours": 10, "baseline": 150}
    assert 10 <= details["decoded_frames_pyav"]["ours"] < details["decoded_frames_pyav"]["baseline"] == 150
    assert details["rgb_bytes_held"]["ours"] < details["rgb_bytes_held"]["baseline"] / 5
    assert details["cpu_seconds"].keys() == {"ours", "baseline", "from_cache"}


def test_transport() -> None:
    """Float32 is four times uint8, and three answers carry it three times; in one message a shared tensor goes once."""
    found = run("transport", "hidden=32", "layers=1", "answers=3", "answer=4", "frames=8", "height=3", "width=3", "repeats=1")
    sizes = found["details"]["clip_bytes"]
    assert found["exactness"] == 0.0
    assert sizes["pixel_rows_float32"] == 4 * sizes["frames_uint8"] == 4 * 8 * 84 * 84 * 3
    assert found["ratio"] == pytest.approx(12, rel=0.05)
    counted = found["details"]["bytes"]
    assert counted["baseline_in_one_pickle"] / counted["ours"] == pytest.approx(4, rel=0.05)
