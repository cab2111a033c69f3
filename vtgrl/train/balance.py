"""Even work over the ranks of a step: groups move from the rank with most of it to ranks with less, as ids, never as pixels.

Each rank holds the groups that it drew. Before anything is computed from them, ranks exchange place and cost of every group (packed
tokens + attention pairs, see `packing.cost`), come to the same plan, and a rank that receives a group builds its prompt from the
sample again: the clip comes from the frame cache or is decoded. So a group stays where it is unless moving it is worth that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from vtgrl.core.digest import digest
from vtgrl.core.errors import DataError, RunError
from vtgrl.core.types import Sample
from vtgrl.model.packing import cost
from vtgrl.model.types import PackedGroup, Prompt
from vtgrl.train.order import copy_numbers
from vtgrl.train.session import Session
from vtgrl.train.world import World

A = TypeVar("A")

REBUILD = 0.1
"""What building a prompt again counts, as a share of its group's work: the rank that receives it does this beside its own."""
LEAST = 0.01
"""An exchange between two ranks lowers the larger work of the two by at least this share of the mean, or it is not made."""


@dataclass(frozen=True, eq=False)
class Evened(Generic[A]):
    """This rank's prompts and answers in the order of the step's batch. parts: which of the step's updates each belongs to.
    metrics: equal on every rank, empty on a single one."""

    prompts: list[Prompt]
    answers: list[A]
    parts: list[int]
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Parcel:
    """A group that moves. mark: of the prompt that its old rank built."""

    place: int
    home: int
    mark: str
    answers: Any


def even_out(
    session: Session,
    step: int,
    prompts: Sequence[Prompt],
    answers: Sequence[A],
    *,
    token_ids: Callable[[A], Sequence[tuple[int, ...]]],
    parts: int = 1,
) -> Evened[A]:
    """Move groups between ranks where that shortens the step (collective).

    `token_ids` of `answers[i]` are the packed answers to `prompts[i]`. The batch is cut into `parts`, one optimizer update each, by its
    places and not by rank, so that an update holds the same groups on any number of ranks; each is evened by itself.

    Raises:
        RunError: on every rank, when a rank cannot build a prompt that another one has built, or builds another one.
    """
    batch = session.order.batch_at(step)
    asked = [(session.train[i], copy) for i, copy in zip(batch, copy_numbers(batch), strict=True)]
    numbered = {(sample.id, copy): place for place, (sample, copy) in enumerate(asked)}
    here = [numbered[p.sample.id, p.copy] for p in prompts]
    if session.world.size == 1:
        return Evened(list(prompts), list(answers), [_part(place, len(batch), parts) for place in here])
    hidden = session.engine.policy.hidden_size
    groups = [PackedGroup(p, tuple(token_ids(a))) for p, a in zip(prompts, answers, strict=True)]
    facts = session.world.gather([(place, cost(group, hidden=hidden)) for place, group in zip(here, groups, strict=True)])
    work = [_Work(place, rank, amount) for rank, found in enumerate(facts) for place, amount in found]
    plan, metrics = _plan(work, total=len(batch), parts=parts, ranks=session.world.size, worth=session.recipe.train.balance)
    held = {place: (p, a) for place, p, a in zip(here, prompts, answers, strict=True)}
    if metrics["balance/moved"]:
        held = _exchange(session, held, plan, asked)
    places = sorted(held)
    return Evened([held[p][0] for p in places], [held[p][1] for p in places], [_part(p, len(batch), parts) for p in places], metrics)


def _part(place: int, total: int, parts: int) -> int:
    """Neighbours in the batch belong to one update: each rank drew every so-many-th of them."""
    return place * parts // total


# --- the plan ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """One group of the step: its place in the batch, the rank that drew it, its cost."""

    place: int
    home: int
    cost: float


def _plan(work: Sequence[_Work], *, total: int, parts: int, ranks: int, worth: float) -> tuple[dict[int, int], dict[str, float]]:
    """Place -> rank for every group, and metrics: the largest work of a rank over the mean, before and after."""
    chosen: dict[int, int] = {}
    before = after = mean = 0.0
    for part in range(parts):
        mine = [w for w in work if _part(w.place, total, parts) == part]
        costs, homes = [w.cost for w in mine], [w.home for w in mine]
        new = assign(costs, homes, ranks=ranks, worth=worth)
        chosen.update((w.place, rank) for w, rank in zip(mine, new, strict=True))
        before, after = before + max(_loads(costs, homes, ranks)), after + max(_loads(costs, new, ranks))
        mean += sum(costs) / ranks
    moved = sum(chosen[w.place] != w.home for w in work)
    ratios = {"balance/before": before / mean, "balance/after": after / mean} if mean else {"balance/before": 1.0, "balance/after": 1.0}
    return chosen, {**ratios, "balance/moved": float(moved)}


def assign(costs: Sequence[float], homes: Sequence[int], *, ranks: int, worth: float) -> list[int]:
    """Item -> rank, so that the largest work of a rank is small and most items stay at home. Deterministic.

    The rank with most work gives an item to one with less, or changes one for a cheaper one, as long as that helps; away from home an
    item counts `REBUILD` more. The outcome is taken if it lowers the largest work by `worth` of the mean or more, else nothing moves
    (worth 0: nothing ever moves).
    """
    state = _Assignment(costs, homes, ranks)
    before, mean = state.largest, sum(costs) / ranks
    if not worth or not mean:
        return list(homes)
    while state.improve(LEAST * mean):
        pass
    return state.rank_of if before - state.largest >= worth * mean else list(homes)


class _Assignment:
    """Who holds what; `improve` makes one exchange."""

    def __init__(self, costs: Sequence[float], homes: Sequence[int], ranks: int) -> None:
        self.costs, self.homes, self.rank_of = costs, homes, list(homes)
        self.load = _loads(costs, homes, ranks)

    @property
    def largest(self) -> float:
        """Work of the rank with most of it."""
        return max(self.load)

    def improve(self, least: float) -> bool:
        """Relieve the rank with most work by `least` or more, with the partner that has least work and can; False: none can."""
        ranks = range(len(self.load))
        busy = max(ranks, key=lambda r: (self.load[r], -r))
        for other in sorted((r for r in ranks if r != busy), key=lambda r: (self.load[r], r)):
            best = min(self._exchanges(busy, other), default=None)
            if best is not None and best[0] <= self.load[busy] - least:
                self._apply(best[2], other)
                if best[3] >= 0:
                    self._apply(best[3], busy)
                return True
        return False

    def _exchanges(self, busy: int, other: int) -> Iterable[tuple[float, int, int, int]]:
        """(larger work of the two afterwards, items that travel, item given, item taken or -1)."""
        theirs = sorted((self.costs[i], i) for i, rank in enumerate(self.rank_of) if rank == other)
        half = (self.load[busy] - self.load[other]) / 2
        for give in (i for i, rank in enumerate(self.rank_of) if rank == busy):
            fit = bisect_left(theirs, (self.costs[give] - half, -1))  # the two that come nearest to an even exchange
            for take in (-1, *(i for _, i in theirs[max(fit - 1, 0) : fit + 1])):
                left, right = self.load[busy] - self._cost(give, busy), self.load[other] + self._cost(give, other)
                if take >= 0:
                    left, right = left + self._cost(take, busy), right - self._cost(take, other)
                yield max(left, right), 1 + (take >= 0), give, take

    def _cost(self, item: int, rank: int) -> float:
        return self.costs[item] * (1.0 if rank == self.homes[item] else 1 + REBUILD)

    def _apply(self, item: int, rank: int) -> None:
        self.load[self.rank_of[item]] -= self._cost(item, self.rank_of[item])
        self.load[rank] += self._cost(item, rank)
        self.rank_of[item] = rank


def _loads(costs: Sequence[float], ranks_of: Sequence[int], ranks: int) -> list[float]:
    """Work of every rank."""
    load = [0.0] * ranks
    for amount, rank in zip(costs, ranks_of, strict=True):
        load[rank] += amount
    return load


# --- the exchange --------------------------------------------------------------------------------------------------------


def _exchange(
    session: Session, held: dict[int, tuple[Prompt, A]], plan: dict[int, int], asked: Sequence[tuple[Sample, int]]
) -> dict[int, tuple[Prompt, A]]:
    """What this rank holds after the plan, by place (collective). asked: the batch's samples and which copy of it each is."""
    rank = session.world.rank
    leaving = [_Parcel(place, rank, _mark(p), a) for place, (p, a) in held.items() if plan[place] != rank]
    arriving = [parcel for part in session.world.gather(leaving) for parcel in part if plan[parcel.place] == rank]
    problems, new = [], {place: item for place, item in held.items() if plan[place] == rank}
    for parcel in arriving:
        sample, copy = asked[parcel.place]
        try:
            prompt = replace(session.builder.build(sample), copy=copy)
        except DataError as error:
            problems.append(f"row {sample.id}: rank {rank} cannot do what rank {parcel.home} could: {error}")
            continue
        if _mark(prompt) != parcel.mark:
            problems.append(f"row {sample.id}: rank {rank} builds another prompt than rank {parcel.home}")
        new[parcel.place] = (prompt, parcel.answers)
    _raise_together(session.world, problems)
    return new


def _mark(prompt: Prompt) -> str:
    """Equal for equal ids and positions."""
    return digest([prompt.input_ids, prompt.next_position])


def _raise_together(world: World, problems: Sequence[str]) -> None:
    """Every rank stops when one of them could not take what it was given (collective)."""
    found = [problem for part in world.gather(list(problems)) for problem in part]
    if found:
        raise RunError(
            f"{len(found)} prompts that moved to another rank could not be built there as where they came from, first: {found[0]}; "
            "give all machines the same files, or set train.balance=0"
        )
