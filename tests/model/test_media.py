"""Clips for the model: processed ahead in threads, bounded in bytes, from memory or from the frame cache, equal in every way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import VideoRef
from vtgrl.data.video.decode import clip_id
from vtgrl.data.video.plan import clip_bytes
from vtgrl.model.load import load_parts
from vtgrl.model.media import MEDIUM_BYTES, MediaStore
from vtgrl.model.types import Medium

pytestmark = pytest.mark.timeout(120)
OpenStore = Callable[..., MediaStore]


@pytest.fixture
def store(tiny_dir: Callable[[str], Path]) -> Iterator[OpenStore]:
    """A store for the tiny Qwen2.5-VL; its processes end with the test."""
    made = []
    parts = load_parts(tiny_dir("qwen2_5_vl"))

    def get(*, cache_bytes: int = 2**30, **video: Any) -> MediaStore:
        config = VideoConfig(max_frames=8, **video)
        one = MediaStore(processor=parts.processor, family=parts.family, config=parts.config, video=config, cache_bytes=cache_bytes)
        made.append(one)
        return one

    yield get
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def refs(world_dir: Path) -> list[VideoRef]:
    return [VideoRef(str(world_dir / row["video"]["path"])) for _, row in read_jsonl(world_dir / "world.jsonl")][:6]


def same(one: Medium, other: Medium) -> bool:
    frames = one.frames_THWC.tobytes() == other.frames_THWC.tobytes()
    rest = (one.id, one.metadata, one.grid_thw, one.seconds_per_grid) == (other.id, other.metadata, other.grid_thw, other.seconds_per_grid)
    return frames and rest and torch.equal(one.pixel_values, other.pixel_values)


def wait_for(ready: Callable[[], bool]) -> None:
    for _ in range(3000):
        if ready():
            return
        time.sleep(0.01)
    pytest.fail("waited for thirty seconds")


def where_processed(one: MediaStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that ran the Hugging Face processor."""
    names: list[str] = []
    finish = one._loader._finish

    def recorded(clip: Any) -> Medium:
        names.append(threading.current_thread().name)
        return finish(clip)

    monkeypatch.setattr(one._loader, "_finish", recorded)
    return names


def test_announced_clips_are_processed_off_the_main_thread(store: OpenStore, refs: list[VideoRef], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ahead = store(), store(workers=2)
    here, there = where_processed(plain, monkeypatch), where_processed(ahead, monkeypatch)
    ahead.prefetch(refs)
    assert all(same(ahead.get(ref), plain.get(ref)) for ref in refs)
    assert here == ["MainThread"] * 6
    assert len(there) == 6
    assert all(name.startswith("vtgrl-ahead") for name in there)


def test_clips_in_memory_are_not_made_again(store: OpenStore, refs: list[VideoRef]) -> None:
    """Each step announces the next one's clips, most of them known on a small data set."""
    one = store(workers=1)
    for _ in range(3):
        one.prefetch([*refs[:2], VideoRef("/not/there.mp4"), refs[2]])
        for ref in refs[:3]:
            one.get(ref)
    one.prefetch(refs[:3])
    assert one._loader._ahead is not None
    assert one._loader._ahead.begun == []
    with pytest.raises(DataError, match=r"/not/there\.mp4: No such file"):
        one.get(VideoRef("/not/there.mp4"))
    assert one.decoded == 3


def test_bytes_ahead_are_bounded(store: OpenStore, refs: list[VideoRef]) -> None:
    """A medium is five times its frames; with room for one and a half of the largest, one is made at a time."""
    probe = store()
    largest = MEDIUM_BYTES * clip_bytes(probe._policy)
    medium = probe.get(refs[0])
    assert probe.bytes == MEDIUM_BYTES * medium.frames_THWC.nbytes <= largest
    one = store(workers=2, ahead_gb=1.5 * largest / 2**30)
    one.prefetch(refs)
    ahead = one._loader._ahead
    assert ahead is not None
    assert len(ahead.begun) == 1, "before a clip is there it counts as the largest that the recipe allows"
    wait_for(lambda: len(ahead.begun) > 1)
    for ref in refs:
        assert ahead.held <= 1.5 * largest
        one.get(ref)


def test_frame_cache_serves_the_next_store(
    store: OpenStore, refs: list[VideoRef], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, plain = store(cache_dir=str(tmp_path), cache_gb=0.1), store()
    media = [first.get(ref) for ref in refs]
    second = store(cache_dir=str(tmp_path), cache_gb=0.1, workers=1, cache_bytes=0)
    second.prefetch(refs)
    for ref, medium in zip([*refs, refs[0]], [*media, media[0]], strict=True):
        assert same(second.get(ref), medium)
        assert same(plain.get(ref), medium)
    assert (first.decoded, second.decoded) == (6, 0)
    second.close()
    assert f"clips: 0 decoded, 7 from the frame cache {tmp_path}" in caplog.text


def test_cache_folder_that_cannot_be_used_is_said_with_its_key(store: OpenStore) -> None:
    with pytest.raises(ConfigError, match=r"video\.cache_dir=/proc/frames"):
        store(cache_dir="/proc/frames", cache_gb=0.1)


@pytest.mark.parametrize("workers", [0, 1])
def test_clip_that_the_processor_refuses_is_named(
    store: OpenStore, refs: list[VideoRef], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = store(workers=workers)

    def refuse(clip: Any) -> Medium:
        raise DataError(f"clip {clip.id}: five patches")

    monkeypatch.setattr(one._loader, "_finish", refuse)
    one.prefetch(refs[:1])
    with pytest.raises(DataError, match=rf"^{refs[0].path}: clip {clip_id(refs[0], one._policy)}: five patches"):
        one.get(refs[0])
