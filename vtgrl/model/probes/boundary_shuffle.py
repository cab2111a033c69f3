"""Shuffle the frames around the true event's boundaries: an answer that was read off the clip becomes less likely, one that
was guessed does not (the probe of TaRO, arXiv 2606.09248).

Against the paper's release: one shuffled clip a prompt, the same for all its answers, so that equal answers score equally;
never the identity; the radius shrinks to the event; windows are cut to the clip; and whole temporal patches can be moved, so
that no patch blends two instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from vtgrl.core.probes import ProbeConfig
from vtgrl.core.registry import opt, register
from vtgrl.core.seeds import derive_seed
from vtgrl.model.probes._boundaries import Radius, clip_windows, shuffle, zones
from vtgrl.model.probes.types import Probed
from vtgrl.model.slices import Variant, whole
from vtgrl.model.types import Medium, Prompt

Unit = tuple[int, ...]
"""Frames that move together."""


@dataclass(frozen=True)
class BoundaryShuffleConfig(ProbeConfig):
    """Settings of the boundary shuffle."""

    radius_s: float = opt(3.0, "seconds on each side of a boundary; at most half the event, but one temporal patch at least", gt=0)
    granularity: Literal["frame", "patch"] = opt(
        "frame",
        "what moves. frame: single frames, as published; a temporal patch then blends two instants. patch: whole temporal "
        "patches of two frames; the vision tower then has nothing to do",
    )
    permutations: int = opt(1, "shuffled clips a prompt; log-probs are averaged over them, each costs one forward pass", ge=1)


@register("probe", "boundary_shuffle", config=BoundaryShuffleConfig, paper="arXiv:2606.09248")
def boundary_shuffle(prompt: Prompt, *, config: BoundaryShuffleConfig, seed: int) -> Probed:
    """Frames within `radius_s` of the true windows' boundaries in another order."""
    if not prompt.media:
        return Probed(skipped="no_video")
    if not prompt.sample.windows:
        return Probed(skipped="no_window")
    clip = whole(prompt.media[0])
    windows = clip_windows(prompt.sample.windows, duration=prompt.duration)
    if not windows:
        return Probed(skipped="outside")
    orders = frame_orders(clip, windows, config=config, seed=seed)
    if not orders:
        return Probed(skipped="too_few_frames")
    changed = [sum(place != frame for place, frame in enumerate(order)) for order in orders]
    variants = [Variant(f"{clip.id} boundary_shuffle {seed}.{i}", clip, order) for i, order in enumerate(orders)]
    coverage = sum(changed) / len(changed) / len(clip.frames_THWC)
    return Probed(tuple(replace(prompt, media=(v, *prompt.media[1:])) for v in variants), coverage)


def frame_orders(
    clip: Medium, windows: Sequence[tuple[float, float]], *, config: BoundaryShuffleConfig, seed: int
) -> list[tuple[int, ...]]:
    """For each shuffled clip, the frame that each place shows; equal ones once, none when there is nothing to shuffle."""
    times = [index / clip.metadata["fps"] for index in clip.metadata["frames_indices"]]
    units = _instants(times) if config.granularity == "frame" else _patches(len(times), clip.grid_thw[0])
    middles = [sum(times[j] for j in unit) / len(unit) for unit in units]
    where = zones(middles, windows, radius=Radius(config.radius_s, clip.seconds_per_grid))
    if not where:
        return []
    shuffles = [shuffle(len(units), where, seed=derive_seed(seed, i)) for i in range(config.permutations)]
    return list(dict.fromkeys(_frames(units, order) for order in shuffles))


def _instants(times: Sequence[float]) -> list[Unit]:
    """One frame each; a frame that is shown twice to make their number even counts once."""
    return [tuple(run) for _, run in groupby(range(len(times)), key=lambda j: times[j])]


def _patches(frames: int, slices: int) -> list[Unit]:
    size = frames // slices
    return [tuple(range(i, i + size)) for i in range(0, frames, size)]


def _frames(units: Sequence[Unit], order: Sequence[int]) -> tuple[int, ...]:
    """Order of units -> order of frames. A place of more frames than the unit it shows repeats that unit's last frame."""
    shown = [(units[place], units[unit]) for place, unit in enumerate(order)]
    return tuple(frames[min(i, len(frames) - 1)] for places, frames in shown for i in range(len(places)))
