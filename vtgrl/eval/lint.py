"""Faults of a ground truth that move scores: ends beyond the video, windows without length, duplicates, stated lengths."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError
from vtgrl.core.types import Sample
from vtgrl.eval.benchmark import gt_digest
from vtgrl.eval.predictions import content_key
from vtgrl.eval.score import NOISE
from vtgrl.eval.scoring import load_truth

FILE_SECONDS = 0.5
"""A stated duration may differ from the file's by this much: annotators and decoders round differently."""

_NAME_SPAN = re.compile(r"_(\d+(?:\.\d+)?)_(\d+(?:\.\d+)?)$")

MEANING = {
    "unusable": "row left out: it cannot be read",
    "end_beyond_duration": "a window ends after the video: no answer inside the video reaches IoU 1",
    "float_noise": f"of these, by less than {NOISE} s: clip them",
    "start_beyond_duration": "a window starts after the video",
    "zero_length": "a window without length: no evaluator can score it above 0",
    "duplicate_query": "the same video and query more than once: evaluators that key by text fold them",
    "same_windows_twice": "one query holds the same window twice",
    "duration_differs_from_name": "the file name states another length than the annotation",
    "duration_differs_from_file": f"the video's length differs from the stated one by more than {FILE_SECONDS} s",
    "several_durations": "one clip has several stated lengths",
    "no_duration": "no length stated: windows cannot be checked or clipped",
    "file_missing": "no such video",
    "file_unreadable": "the video cannot be opened",
}


def lint_benchmark(benchmark: str, annotations: Path, *, videos: Path | None = None) -> dict[str, Any]:
    """Everything that is odd about an annotation file.

    Returns {"benchmark", "n", "videos", "gt_digest", "notes", "counts": {kind: n}, "findings": [{"kind", "id", "detail"}]}.

    Raises:
        DataError: the file cannot be read, or holds the queries of another split.
    """
    truth, _ = load_truth(benchmark, annotations)
    checks: Sequence[Callable[[Sequence[Sample]], Iterator[dict[str, str]]]] = (_windows, _duplicates, _durations)
    findings = [{"kind": "unusable", "id": where, "detail": reason} for where, reason in truth.rejected]
    for check in checks:
        findings += check(truth.rows)
    if videos is not None:
        findings += _files(truth.rows, videos)
    counts: dict[str, int] = defaultdict(int)
    for finding in findings:
        counts[finding["kind"]] += 1
    return {
        "benchmark": benchmark,
        "n": len(truth.rows),
        "videos": len({s.video.path for s in truth.rows if s.video}),
        "gt_digest": gt_digest(truth.rows),
        "notes": list(truth.notes),
        "counts": dict(counts),
        "findings": findings,
    }


def lint_rows(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """Counts with an example each, for the command line."""
    rows: list[Sequence[str]] = [(result["benchmark"], f"{result['n']} queries, {result['videos']} videos", result["gt_digest"])]
    for kind, count in result["counts"].items():
        example = next(f for f in result["findings"] if f["kind"] == kind)
        rows.append((kind, str(count), f"{MEANING[kind]}; first {example['id']}: {example['detail']}"))
    return rows if result["findings"] else [*rows, ("nothing odd", "", "")]


def _finding(kind: str, sample: Sample, detail: str) -> dict[str, str]:
    return {"kind": kind, "id": sample.id, "detail": detail}


def _windows(samples: Sequence[Sample]) -> Iterator[dict[str, str]]:
    for sample in samples:
        duration = sample.video.duration if sample.video else None
        if duration is None:
            yield _finding("no_duration", sample, "")
        for start, end in sample.windows:
            over = end - duration if duration is not None else 0.0
            if over > 0:
                yield _finding("end_beyond_duration", sample, f"[{start}, {end}] in {duration} s")
            if 0 < over < NOISE:
                yield _finding("float_noise", sample, f"[{start}, {end}] in {duration} s")
            if duration is not None and start >= duration:
                yield _finding("start_beyond_duration", sample, f"[{start}, {end}] in {duration} s")
            if start == end:
                yield _finding("zero_length", sample, f"[{start}, {end}]")
        if len(set(sample.windows)) < len(sample.windows):
            yield _finding("same_windows_twice", sample, str(list(sample.windows)))


def _duplicates(samples: Sequence[Sample]) -> Iterator[dict[str, str]]:
    first: dict[tuple[object, ...], str] = {}
    for sample in samples:
        video = sample.video
        key = (*content_key(video.path if video else "", sample.query), video.start if video else None)
        if key in first:
            yield _finding("duplicate_query", sample, f"as {first[key]}")
        first.setdefault(key, sample.id)


def _durations(samples: Sequence[Sample]) -> Iterator[dict[str, str]]:
    stated: dict[tuple[object, ...], float] = {}
    for sample in samples:
        video = sample.video
        if video is None or video.duration is None:
            continue
        known = stated.setdefault((video.path, video.start), video.duration)
        if abs(known - video.duration) > NOISE:
            yield _finding("several_durations", sample, f"{video.duration} s, elsewhere {known} s")
        span = _NAME_SPAN.search(content_key(video.path, "")[0])
        if span and abs(float(span.group(2)) - float(span.group(1)) - video.duration) > FILE_SECONDS:
            yield _finding("duration_differs_from_name", sample, f"{video.duration} s, the name says {span.group(1)} to {span.group(2)}")


def _files(samples: Sequence[Sample], videos: Path) -> Iterator[dict[str, str]]:
    """Compares stated lengths with the files (whole files only: a cut clip may lie in a longer one)."""
    from vtgrl.eval.files import file_seconds, find_video

    for sample in {s.video.path: s for s in samples if s.video}.values():
        assert sample.video is not None
        file = find_video(videos, sample.video.path)
        if file is None:
            yield _finding("file_missing", sample, sample.video.path)
            continue
        try:
            length = file_seconds(file)
        except DataError as error:
            yield _finding("file_unreadable", sample, str(error))
            continue
        stated = sample.video.duration
        if stated is not None and sample.video.start is None and abs(length - stated) > FILE_SECONDS:
            yield _finding("duration_differs_from_file", sample, f"stated {stated} s, the file has {length:.2f} s")
