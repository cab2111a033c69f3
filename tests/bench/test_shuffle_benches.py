"""The benches of the probe pass at a small size."""

from __future__ import annotations

from typing import Any

import pytest

from vtgrl.bench.run import run_bench

SMALL = ("hidden=32", "layers=1", "side=2", "answers=3")


def details(name: str, *overrides: str) -> tuple[Any, dict[str, Any]]:
    found = run_bench(name, overrides=overrides)
    assert found.bench == name
    return found, dict(found.details)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_vision_shuffle(family: str) -> None:
    """24 frames at 2 fps, event 4 to 8 s, radius 1 s: five frames at each boundary, in three slices each."""
    found, measured = details("vision-shuffle", *SMALL, f"family={family}", "frames=24", "answer=4", "radius_s=1")
    sent = measured["frame"]["slices"]
    assert 2 <= sent["ours"] <= 6
    assert sent["baseline"] == 3 * 12
    assert found.ratio == sent["baseline"] / sent["ours"]
    assert measured["frame"]["slices_with_the_true_clip"]["ours"] == sent["ours"] + 12
    assert measured["patch"]["slices"] == {"ours": 0, "baseline": 36}
    assert measured["frame"]["tower_flops"]["baseline"] / measured["frame"]["tower_flops"]["ours"] == pytest.approx(found.ratio)
    assert found.exactness == 0.0
    assert max(measured[unit]["logp_difference"] for unit in ("frame", "patch")) <= 2e-5


def test_sensitivity_costs_less_than_two_fifths_of_a_step() -> None:
    """G = 8, 16 seconds: the extra pass is one of a plain step's three passes, and a part of the tower."""
    found, measured = details("sensitivity", "side=2", "answer=16")
    share = measured["extra_share_of_a_plain_step"]
    assert 0.2 < share["patch"] < share["frame"] <= 0.4
    assert share["frame_trainer_baseline"] > 0.4
    assert share["one_by_one"] > 2.0
    assert found.ratio == pytest.approx(share["one_by_one"] / share["frame"])
    assert found.exactness <= 2e-5
