"""The script of a generated clip: which shapes there are, when each is visible, when it moves, and what is asked.

Every clip is divided into four quadrants; a shape stays in its own, so nothing hides anything and "visible" is exact.
Times are multiples of `step`, hence frame boundaries.

difficulty  shapes a clip  asked
0           2-3            "When is the red square visible?"
1           2-4            the same, or "When does the red square move?" (it is visible for longer than it moves)
2           5-8            as 1; quadrants are used again after a shape has gone, and look-alikes share colour or form
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (230, 40, 40),
    "green": (40, 200, 60),
    "blue": (50, 80, 240),
    "yellow": (240, 220, 40),
}
FORMS = ("square", "circle", "triangle")
QUADRANTS = 4
SHAPES_PER_CLIP = {0: (1, 3), 1: (2, 4), 2: (5, 8)}
"""difficulty -> fewest and most shapes."""


@dataclass(frozen=True)
class Actor:
    """One shape. Times in seconds; `visible` = [appears, vanishes), `moves` lies inside it (None: it stands still).

    `path`: offset inside the quadrant at the start and at the end of the movement, each (x, y) in 0..1.
    """

    colour: str
    form: str
    quadrant: int
    visible: tuple[float, float]
    moves: tuple[float, float] | None
    path: tuple[tuple[float, float], tuple[float, float]]

    @property
    def name(self) -> str:
        """As it is called in queries: "red square"."""
        return f"{self.colour} {self.form}"


@dataclass(frozen=True)
class Event:
    """Something that happens to one shape."""

    window: tuple[float, float]
    caption: str
    query: str


@dataclass(frozen=True)
class Script:
    """A clip before it is drawn. `asked` indexes `events`."""

    duration: float
    actors: tuple[Actor, ...]
    events: tuple[Event, ...]
    asked: int


def write_script(rng: np.random.Generator, *, seconds: tuple[float, float], step: float, difficulty: int) -> Script:
    """Draw one clip's script.

    Args:
        seconds: shortest and longest clip.
        step: grid of all times in seconds.
        difficulty: 0, 1 or 2, see the module's table.
    """
    ticks = int(rng.integers(round(seconds[0] / step), round(seconds[1] / step) + 1))
    low, high = SHAPES_PER_CLIP[difficulty]
    count = int(rng.integers(low, high + 1))
    looks = list(product(COLOURS, FORMS))
    chosen = [looks[i] for i in rng.permutation(len(looks))[:count]]
    slots = _slots(rng, count, ticks)
    actors = tuple(_actor(rng, look, slot, step, may_pause=difficulty > 0) for look, slot in zip(chosen, slots, strict=True))
    events = tuple(event for actor in actors for event in _events(actor))
    askable = [i for i, e in enumerate(events) if difficulty > 0 or e.query.endswith("visible?")]
    return Script(ticks * step, actors, events, int(rng.choice(askable)))


def _slots(rng: np.random.Generator, count: int, ticks: int) -> list[tuple[int, int, int]]:
    """(quadrant, appears, vanishes) in ticks for each shape; shapes of one quadrant never meet, with a tick between."""
    order = [int(q) for q in rng.permutation(QUADRANTS)]
    homes = [order[i % QUADRANTS] for i in range(count)]
    slots: list[tuple[int, int, int]] = []
    for i, quadrant in enumerate(homes):
        turn, turns = homes[:i].count(quadrant), homes.count(quadrant)
        begin, end = turn * ticks // turns, (turn + 1) * ticks // turns - (turn + 1 < turns)
        slots.append((quadrant, *_interval(rng, begin, end)))
    return slots


def _interval(rng: np.random.Generator, begin: int, end: int) -> tuple[int, int]:
    """A random interval inside [begin, end] ticks, from two ticks to half of it long.

    Longer ones would make guessing pay: with up to three quarters, a constant answer already has mIoU 0.50, so 0.38.
    """
    room = end - begin
    length = int(rng.integers(2, max(2, room // 2) + 1))
    start = begin + int(rng.integers(0, room - length + 1))
    return start, start + length


def _actor(rng: np.random.Generator, look: tuple[str, str], slot: tuple[int, int, int], step: float, *, may_pause: bool) -> Actor:
    quadrant, start, end = slot
    x0, y0, x1, y1 = rng.uniform(0, 1, 4).tolist()
    path = ((x0, y0), (x1, y1))
    moves: tuple[int, int] | None = (start, end)
    if may_pause:
        path = _far(rng)
        moves = _interval(rng, start, end) if end - start >= 4 and rng.random() < 0.7 else None
    window = None if moves is None else (moves[0] * step, moves[1] * step)
    return Actor(*look, quadrant, (start * step, end * step), window, path)


def _far(rng: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
    """From one corner of the quadrant to another: a movement that can be seen."""
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    first, second = rng.permutation(len(corners))[:2]
    return corners[first], corners[second]


def _events(actor: Actor) -> list[Event]:
    name = actor.name
    events = [Event(actor.visible, f"The {name} is visible.", f"When is the {name} visible?")]
    if actor.moves is not None and actor.moves != actor.visible:
        events.append(Event(actor.moves, f"The {name} moves.", f"When does the {name} move?"))
    return events
