"""Which frames around an event's boundaries are shuffled, and how. Times in seconds of the clip; no pixels.

A unit is what moves: a frame, or all frames of one temporal patch. A zone is a half-open range of units around one
boundary; within a zone the units are permuted, never by the identity.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from vtgrl.core.types import Window

Zone = tuple[int, int]


@dataclass(frozen=True)
class Radius:
    """How far around a boundary to shuffle: `wanted` seconds, but no further than half the event, so that the zones of its
    two boundaries stay apart; an event shorter than two temporal patches of `patch` seconds still gets one patch."""

    wanted: float
    patch: float

    def of(self, length: float) -> float:
        """Seconds for an event of `length` seconds."""
        return min(self.wanted, max(self.patch, length / 2))


def clip_windows(windows: Sequence[Window], *, duration: float) -> list[Window]:
    """Windows cut to [0, duration]; one that lies outside the clip is left out."""
    inside = [(s, e) for s, e in windows if s <= e and s < duration and e > 0]
    return [(max(s, 0.0), min(e, duration)) for s, e in inside]


def zones(times: Sequence[float], windows: Sequence[Window], *, radius: Radius) -> list[Zone]:
    """Where to shuffle: ascending, apart from each other, each of two units or more.

    Args:
        times: of the units, ascending.
        windows: events inside the clip.

    A zone holds the units within the radius, ends included, and at least the unit before and the one after the boundary
    (where frames are sparser than the radius, as in a film of an hour).
    """
    found = [_zone(times, b, radius.of(end - start)) for start, end in windows for b in (start, end)]
    return [zone for zone in _apart(found) if zone[1] - zone[0] >= 2]


def _zone(times: Sequence[float], boundary: float, radius: float) -> Zone:
    after = bisect_left(times, boundary)
    first = min(bisect_left(times, boundary - radius), after - 1)
    end = max(bisect_right(times, boundary + radius), after + 1)
    return max(first, 0), min(end, len(times))


def _apart(found: Sequence[Zone]) -> list[Zone]:
    """Zones that overlap are parted in the middle of what they share; where that would leave a single unit, they are one."""
    out: list[Zone] = []
    for first, end in sorted(set(found)):
        if not out or first >= out[-1][1]:
            out.append((first, end))
            continue
        before, shared_end = out.pop()
        end = max(end, shared_end)
        cut = (first + shared_end + 1) // 2
        out += [(before, cut), (cut, end)] if cut - before >= 2 and end - cut >= 2 else [(before, end)]
    return out


def shuffle(units: int, where: Sequence[Zone], *, seed: int) -> tuple[int, ...]:
    """-> for each place the unit that it shows. Uniform over the permutations of each zone that are not the identity."""
    rng = random.Random(seed)
    order = list(range(units))
    for first, end in where:
        while order[first:end] == list(range(first, end)):
            part = order[first:end]
            rng.shuffle(part)
            order[first:end] = part
    return tuple(order)
