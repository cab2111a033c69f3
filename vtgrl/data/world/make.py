"""`make_world`: a folder with videos/ and world.jsonl, train.jsonl, val.jsonl."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from vtgrl.core.errors import ConfigError
from vtgrl.core.jsonl import atomic_write, cannot_write, to_line
from vtgrl.core.types import Caption, Sample, VideoRef
from vtgrl.data.samples import sample_to_dict
from vtgrl.data.world.draw import write_mp4
from vtgrl.data.world.script import SHAPES_PER_CLIP, Script, write_script

STEP = 0.5
"""Grid of all event times in seconds: the frame interval at 2 fps."""


def make_world(
    out: Path | str,
    *,
    n: int,
    seed: int,
    size: int = 56,
    fps: int = 8,
    seconds: tuple[float, float] = (8.0, 8.0),
    difficulty: int = 0,
    val_every: int = 8,
) -> list[Sample]:
    """Generate `n` clips with one question each.

    Clip i depends on `seed` and i alone: the same bytes of JSONL and the same frames for every n >= i.

    Args:
        out: folder to write; existing files of the same names are replaced.
        size: side of the square frames in pixels (even). 56 is one patch grid of 4x4 for a patch of 14.
        fps: frame rate of the files; a multiple of 2, so that events fall on frame boundaries.
        seconds: shortest and longest clip.
        difficulty: 0 easy, 1 with questions about movement, 2 with many look-alikes (vtgrl/data/world/script.py).
        val_every: every so many clips one goes to the split "val"; 0: none.

    Returns:
        The samples, with the full paths of their clips.
    """
    _check(n=n, size=size, fps=fps, seconds=seconds, difficulty=difficulty, val_every=val_every)
    out = Path(out)
    try:
        (out / "videos").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    samples = []
    for i in range(n):
        script = write_script(np.random.default_rng([seed, i]), seconds=seconds, step=STEP, difficulty=difficulty)
        name = f"videos/{i:06d}.mp4"
        try:
            write_mp4(out / name, script, size=size, fps=fps)
        except OSError as error:
            raise cannot_write(out / name, error) from error
        split = "val" if val_every and i % val_every == val_every - 1 else "train"
        samples.append(_sample(script, name, sample_id=f"world-{seed}-{i:06d}", split=split, difficulty=difficulty))
    for file, chosen in (("world", ("train", "val")), ("train", ("train",)), ("val", ("val",))):
        atomic_write(out / f"{file}.jsonl", "".join(to_line(sample_to_dict(s)) for s in samples if s.split in chosen))
    return [replace(s, video=replace(s.video, path=str(out / s.video.path))) for s in samples if s.video is not None]


def _sample(script: Script, name: str, *, sample_id: str, split: str, difficulty: int) -> Sample:
    asked = script.events[script.asked]
    events = sorted(script.events, key=lambda e: (e.window, e.caption))
    return Sample(
        id=sample_id,
        task="vtg",
        query=asked.query,
        video=VideoRef(name, duration=script.duration),
        windows=(asked.window,),
        captions=tuple(Caption(*e.window, e.caption) for e in events),
        split=split,
        source="world",
        meta={"level": difficulty},
    )


def _check(*, n: int, size: int, fps: int, seconds: tuple[float, float], difficulty: int, val_every: int) -> None:
    if n < 1:
        raise ConfigError(f"n is {n}: make at least one clip")
    if size < 28 or size % 2:
        raise ConfigError(f"size is {size}: an even number of pixels, 28 or more")
    if fps < 2 or fps % 2:
        raise ConfigError(f"fps is {fps}: a positive multiple of 2, so that events fall on frame boundaries")
    if not 4.0 <= seconds[0] <= seconds[1]:
        raise ConfigError(f"seconds is {seconds}: shortest and longest clip, 4 or more")
    if difficulty not in SHAPES_PER_CLIP:
        raise ConfigError(f"difficulty is {difficulty}: one of {', '.join(map(str, SHAPES_PER_CLIP))}")
    if val_every < 0:
        raise ConfigError(f"val_every is {val_every}: 0 for no validation clips, or how often one is set apart")
