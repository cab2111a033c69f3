"""Rows set apart for validation: whole clips, the same everywhere."""

from __future__ import annotations

import pytest

from vtgrl.core.errors import ConfigError
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.select.hold_out import hold_out

ROWS = [Sample(f"{clip}-{q}", "vtg", "q", VideoRef(f"/here/v{clip}.mp4")) for clip in range(400) for q in range(3)]


def test_whole_clips_are_set_apart_whatever_the_order_and_the_folder() -> None:
    train, val = hold_out(ROWS, 0.1)
    assert 25 <= len(val) / 3 <= 55
    assert len(train) + len(val) == len(ROWS)
    assert not {s.video.path for s in train if s.video} & {s.video.path for s in val if s.video}
    moved = [Sample(s.id, "vtg", "q", VideoRef(s.video.path.replace("/here", "/there"))) for s in reversed(ROWS) if s.video]
    assert {s.id for s in hold_out(moved, 0.1)[1]} == {s.id for s in val}
    assert {s.id for s in hold_out(ROWS[:600], 0.1)[1]} == {s.id for s in val if s in ROWS[:600]}
    assert hold_out(ROWS, 0.0) == (tuple(ROWS), ())


def test_rows_without_a_clip_go_by_their_id() -> None:
    texts = [Sample(f"t{i}", "text", "q") for i in range(400)]
    assert 15 <= len(hold_out(texts, 0.1)[1]) <= 65


def test_an_empty_part_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.hold_out: 0\.05 of 3 rows leaves (3 to train on and 0|0 to train on and 3)"):
        hold_out(ROWS[:3], 0.05)


def test_validation_rows_come_from_one_place() -> None:
    def recipe(*overrides: str) -> GrpoRecipe:
        return load_recipe(GrpoRecipe, file=None, overrides=overrides)

    with pytest.raises(ConfigError, match=r"train\.val_every.* data\.hold_out=0\.05"):
        recipe("train.val_every=5")
    assert recipe("train.val_every=5", "data.hold_out=0.1").data.hold_out == 0.1
    with pytest.raises(ConfigError, match=r"data\.hold_out.* use one of them"):
        recipe("data.val_path=x", "data.hold_out=0.1")
