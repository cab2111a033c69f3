"""Generated clips: exact truth in the pixels, deterministic, item by item, and readable as any other data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.registry import Component, get
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.load import load_samples
from vtgrl.data.video.decode import decode_clip
from vtgrl.data.video.types import FramePolicy
from vtgrl.data.world import make_world
from vtgrl.data.world.draw import draw
from vtgrl.data.world.script import COLOURS, FORMS, QUADRANTS, Script, write_script

EVERY_FRAME = FramePolicy(fps=1000, min_frames=2, max_frames=768, min_pixels=3136, max_pixels=3136, total_pixels=10**9, unit=28)


def scripts(difficulty: int, count: int = 200) -> list[Script]:
    return [write_script(np.random.default_rng([7, i]), seconds=(4.0, 16.0), step=0.5, difficulty=difficulty) for i in range(count)]


def load(folder: Path, name: str = "world.jsonl") -> tuple[Sample, ...]:
    return load_samples(Component("source", "jsonl", get("source", "jsonl").config()), path=folder / name).samples


def test_same_seed_same_bytes_and_items_do_not_depend_on_n(tmp_path: Path) -> None:
    for name, n, seed in (("a", 12, 3), ("b", 12, 3), ("c", 5, 3), ("d", 5, 4)):
        make_world(tmp_path / name, n=n, seed=seed, difficulty=1)
    rows = {name: (tmp_path / name / "world.jsonl").read_text().splitlines() for name in "abcd"}
    assert rows["a"] == rows["b"]
    assert rows["c"] == rows["a"][:5]
    assert not set(rows["d"]) & set(rows["a"])
    for k in range(5):
        file = f"videos/{k:06d}.mp4"
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "c" / file).read_bytes()


def test_rows_are_canonical_and_split(tmp_path: Path) -> None:
    made = make_world(tmp_path, n=24, seed=0)
    assert load(tmp_path) == tuple(made)
    train, val = load(tmp_path, "train.jsonl"), load(tmp_path, "val.jsonl")
    assert (len(train), len(val)) == (21, 3)
    assert {s.id for s in train} | {s.id for s in val} == {s.id for s in made}
    assert {s.split for s in val} == {"val"}
    assert len({s.id for s in made}) == 24
    for sample in made:
        assert sample.video is not None
        assert Path(sample.video.path).is_file()
        (window,) = sample.windows
        assert window in {(c.start, c.end) for c in sample.captions}


def colour_is_there(image_HWC: np.ndarray, colour: str) -> bool:
    """Whether some ten pixels are near the colour; compression moves values a little."""
    return int((np.abs(image_HWC.astype(int) - COLOURS[colour]).max(axis=-1) < 40).sum()) >= 10


def test_pixels_agree_with_the_windows(tmp_path: Path) -> None:
    """A shape of a colour that no other shape of its clip has is in the decoded frames in exactly its window."""
    checked = 0
    for sample in make_world(tmp_path, n=30, seed=1):
        colour = sample.query.split()[3]
        if sum(f" {colour} " in c.text for c in sample.captions) > 1:
            continue
        assert sample.video is not None
        clip = decode_clip(VideoRef(sample.video.path), policy=EVERY_FRAME, backend="pyav")
        assert clip.duration == sample.video.duration
        seen = [t for t, image in zip(clip.times, clip.frames_THWC, strict=True) if colour_is_there(image, colour)]
        (start, end) = sample.windows[0]
        assert (seen[0], seen[-1]) == (start, end - 1 / 8)
        assert len(seen) == round((end - start) * 8)
        checked += 1
    assert checked >= 10


@pytest.mark.parametrize("difficulty", [0, 1, 2])
def test_scripts_are_sound(difficulty: int) -> None:
    kinds = set()
    for script in scripts(difficulty):
        assert 4.0 <= script.duration <= 16.0
        names = [actor.name for actor in script.actors]
        assert len(set(names)) == len(names)
        for event in script.events:
            start, end = event.window
            assert 0 <= start < end <= script.duration
            assert (start * 2).is_integer()
            assert (end * 2).is_integer()
        for quadrant in range(QUADRANTS):
            spans = sorted(a.visible for a in script.actors if a.quadrant == quadrant)
            assert all(first[1] < second[0] for first, second in pairwise(spans))
        queries = [event.query for event in script.events]
        assert len(set(queries)) == len(queries)
        kinds.add(script.events[script.asked].query.split()[1])
    assert kinds == ({"is"} if difficulty == 0 else {"is", "does"})


def test_truth_is_spread() -> None:
    """A constant answer scores little: there is something to learn."""
    windows = np.array([s.events[s.asked].window for s in scripts(0, 500)])
    durations = np.array([s.duration for s in scripts(0, 500)])
    grid = [(a, b) for a in np.arange(0, 1, 0.1) for b in np.arange(a + 0.1, 1.01, 0.1)]
    best = max(float(overlap(windows, np.outer(durations, pair)).mean()) for pair in grid)
    assert best < 0.4


def overlap(a_N2: np.ndarray, b_N2: np.ndarray) -> np.ndarray:
    shared = np.minimum(a_N2[:, 1], b_N2[:, 1]) - np.maximum(a_N2[:, 0], b_N2[:, 0])
    hull = np.maximum(a_N2[:, 1], b_N2[:, 1]) - np.minimum(a_N2[:, 0], b_N2[:, 0])
    return np.clip(shared, 0, None) / hull


def test_movement_is_in_the_pixels() -> None:
    """Difficulty 1: a shape stands still outside its movement and changes place inside it."""
    script = next(s for s in scripts(1) if s.events[s.asked].query.endswith("move?"))
    name = script.events[script.asked].query.split("the ")[1].removesuffix(" move?")
    actor = next(a for a in script.actors if a.name == name)
    alone = Script(script.duration, (actor,), script.events, script.asked)
    assert actor.moves is not None
    start, end = actor.moves
    before = shape_mask(alone, time=actor.visible[0])
    after = shape_mask(alone, time=actor.visible[1] - 0.01)
    np.testing.assert_array_equal(shape_mask(alone, time=start), before)
    np.testing.assert_array_equal(shape_mask(alone, time=end) if end < actor.visible[1] else after, after)
    assert not np.array_equal(shape_mask(alone, time=(start + end) / 2), before)
    assert not np.array_equal(after, before)


def shape_mask(script: Script, *, time: float) -> np.ndarray:
    """Where the shapes are: what differs from the corner's background."""
    frame_HWC = draw(script, time=time, size=112)
    empty_HWC = draw(Script(script.duration, (), script.events, script.asked), time=time, size=112)
    return np.asarray((frame_HWC != empty_HWC).any(-1))


def test_the_background_tells_the_time() -> None:
    """It brightens from dusk to dawn over the clip, the same in clips of any length."""
    script = scripts(1)[0]
    empty = Script(script.duration, (), script.events, script.asked)
    greys = [int(draw(empty, time=script.duration * share, size=56)[0, 0, 0]) for share in (0.0, 0.25, 0.5, 0.75)]
    assert greys == [24, 68, 112, 156]


def test_forms_differ() -> None:
    from vtgrl.data.world.draw import _mask

    areas = [int(_mask(form, 20).sum()) for form in FORMS]
    assert areas == sorted(areas, reverse=True)
    assert len(set(areas)) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n is 0"),
        ({"size": 57}, "size is 57"),
        ({"fps": 7}, "fps is 7"),
        ({"seconds": (2.0, 8.0)}, "seconds is"),
        ({"seconds": (9.0, 8.0)}, "seconds is"),
        ({"difficulty": 3}, "difficulty is 3"),
        ({"val_every": -1}, "val_every is -1"),
    ],
)
def test_senseless_settings(tmp_path: Path, change: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"n": 1, "seed": 0, **change}
    with pytest.raises(ConfigError, match=message):
        make_world(tmp_path, **settings)  # type: ignore[arg-type]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write .*file: Not a directory"):
        make_world(tmp_path / "file", n=1, seed=0)
    (tmp_path / "world" / "videos" / "000000.mp4").mkdir(parents=True)
    with pytest.raises(RunError, match=r"cannot write .*000000\.mp4: .*directory"):
        make_world(tmp_path / "world", n=1, seed=0)


def test_a_clip_states_its_level_not_a_difficulty(tmp_path: Path) -> None:
    """meta.difficulty is 100 x IoU of a model's answer (`vtgrl data difficulty`): nobody has answered a new clip."""
    (sample,) = make_world(tmp_path / "w", n=1, seed=0, difficulty=1)
    assert dict(sample.meta) == {"level": 1}
