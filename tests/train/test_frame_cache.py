"""A run with `video.cache_dir` decodes each clip once, in whatever epoch, run or rank, and trains as it would have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.train.kit import sft_recipe
from vtgrl.model.media import MediaStore
from vtgrl.model.prompting import PromptBuilder
from vtgrl.train.sft import run_sft

ROWS = 6


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(decoded, from the frame cache) of every run, without clips in memory: as a data set that is larger than it."""
    monkeypatch.setitem(PromptBuilder.__init__.__kwdefaults__, "cache_bytes", 0)
    found: list[tuple[int, int]] = []
    close = MediaStore.close

    def closing(self: MediaStore) -> None:
        found.append((self.decoded, self._loader.cached))
        close(self)

    monkeypatch.setattr(MediaStore, "close", closing)
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_second_epoch_decodes_nothing(
    tiny_dir: Callable[[str], Path], world_dir: Path, tmp_path: Path, counts: list[tuple[int, int]], workers: int
) -> None:
    settings = (f"data.limit={ROWS}", "train.batch=3", "train.epochs=2", f"video.workers={workers}")
    cache = (f"video.cache_dir={tmp_path / 'frames'}", "video.cache_gb=0.1")
    losses = []
    for run, extra in (("plain", ()), ("first", cache), ("second", cache)):
        run_sft(sft_recipe(tiny_dir("qwen2_5_vl"), world_dir, *settings, *extra), run_dir=tmp_path / run)
        losses.append([json.loads(line)["loss"] for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()])
    assert counts == [(2 * ROWS, 0), (ROWS, ROWS), (0, 2 * ROWS)]
    assert losses[0] == losses[1] == losses[2]
    assert len(losses[0]) == 4
