"""Canonical rows into a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vtgrl.core.jsonl import atomic_write, to_line
from vtgrl.core.types import Sample
from vtgrl.data.samples import sample_to_dict


def write_samples(path: Path, samples: Sequence[Sample], *, videos: Path) -> None:
    """One sample a line, atomically. Video paths start from `videos` again, as before they were read: a file of the source `jsonl`
    that is read with the same `videos`.

    Raises:
        RunError: not writable.
    """
    atomic_write(path, "".join(to_line(sample_to_dict(_below(s, videos))) for s in samples))


def _below(sample: Sample, videos: Path) -> Sample:
    if sample.video is None or not Path(sample.video.path).is_relative_to(videos):
        return sample
    return replace(sample, video=replace(sample.video, path=str(Path(sample.video.path).relative_to(videos))))
