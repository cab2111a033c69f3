"""Rows by difficulty: the draw against enumeration, the filter against its definition, and what must not matter."""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections import Counter

import pytest

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.schema import SelectConfig
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.select.draw import draw_rows, log_weight
from vtgrl.data.select.rows import select_rows, sorted_by_ease, stated_p, with_difficulty
from vtgrl.data.select.rule import easy_to_hard, evenly, keep_rows


def names(n: int) -> list[str]:
    return [f"q{i}" for i in range(n)]


# --- drawing ----------------------------------------------------------------------------------------------------------


def exact_chances(p: list[float], k: int) -> dict[tuple[int, ...], float]:
    """Chance of every set when k rows are drawn one after the other, each by its weight among those that are left."""
    weights = [math.exp(-((x - 0.3) ** 2) / (2 * 0.2**2)) if x > 0 else 0.0 for x in p]
    chances: Counter[tuple[int, ...]] = Counter()
    for order in itertools.permutations(range(len(p)), k):
        left, chance = sum(weights), 1.0
        for i in order:
            chance *= weights[i] / left if left > 0 else 0.0
            left -= weights[i]
        chances[tuple(sorted(order))] += chance
    return {chosen: chance for chosen, chance in chances.items() if chance > 1e-12}


def test_a_draw_is_sequential_weighted_sampling() -> None:
    """Every possible set comes as often as enumeration says (20,000 draws, 4 standard errors)."""
    p, draws = [0.0, 0.1, 0.3, 0.35, 0.6, 0.95], 20_000
    wanted = exact_chances(p, 3)
    seen = Counter(draw_rows(p, ids=names(6), k=3, seed=seed).rows for seed in range(draws))
    assert set(seen) <= set(wanted)
    for chosen, chance in wanted.items():
        assert abs(seen[chosen] / draws - chance) < 4 * math.sqrt(chance * (1 - chance) / draws), chosen


def test_the_order_of_the_file_does_not_matter() -> None:
    rng = random.Random(0)
    p, ids = [rng.random() for _ in range(200)], names(200)
    chosen = {ids[i] for i in draw_rows(p, ids=ids, k=50, seed=3).rows}
    places = list(range(200))
    rng.shuffle(places)
    again = draw_rows([p[i] for i in places], ids=[ids[i] for i in places], k=50, seed=3).rows
    assert {ids[places[j]] for j in again} == chosen
    assert {ids[i] for i in draw_rows(p, ids=ids, k=50, seed=4).rows} != chosen


def test_one_row_more_moves_one_place_at_most() -> None:
    rng = random.Random(1)
    p, ids = [rng.random() for _ in range(100)], names(100)
    few = set(draw_rows(p[:-1], ids=ids[:-1], k=30).rows)
    assert len(few - set(draw_rows(p, ids=ids, k=30).rows)) <= 1


def test_fewer_eligible_rows_than_k_are_all_taken() -> None:
    """R6: numpy's choice raises there, and the released script then writes nothing."""
    drawn = draw_rows([0.0, 0.2, 1.0, 0.0], ids=names(4), k=2500)
    assert (drawn.rows, drawn.eligible, drawn.short) == ((1, 2), 2, True)
    assert not draw_rows([0.2, 1.0], ids=names(2), k=2).short
    assert draw_rows([0.0, 0.2], ids=names(2), k=9, above=-1).rows == (0, 1)


def test_a_narrow_bell_does_not_underflow() -> None:
    """exp(-0.7^2 / (2 x 0.01^2)) is 0 in float64: such a row could not be drawn at all."""
    assert math.exp(log_weight(1.0, mu=0.3, sigma=0.01)) == 0.0
    assert draw_rows([1.0, 0.9, 0.3], ids=names(3), k=2, sigma=0.01).rows == (1, 2)


# --- the filter ---------------------------------------------------------------------------------------------------------


def test_kept_rows_by_definition() -> None:
    rng = random.Random(2)
    for _ in range(300):
        n, k = rng.randint(0, 30), rng.choice([0, 1, 3, 10, 40])
        p = [rng.choice([0.0, 0.1, 0.5, 0.7, 0.7000001, 1.0, rng.random()]) for _ in range(n)]
        kept = keep_rows(p, ids=names(n), k=k)
        inside = [i for i in range(n) if 0 < p[i] <= 0.7]
        assert len(kept.rows) == len(set(kept.rows)) == (min(k, len(inside)) if k else len(inside))
        assert set(kept.rows) <= set(inside)
        values = [p[i] for i in kept.rows]
        assert values == sorted(values, reverse=True)  # easy to hard
        assert (kept.solved, kept.hopeless) == (sum(x > 0.7 for x in p), sum(x == 0 for x in p))
        assert kept.thinned == len(inside) - len(kept.rows)
        assert len(kept.rows) + kept.solved + kept.hopeless + kept.thinned == n


def test_all_solved_and_all_hopeless_leave_nothing() -> None:
    assert keep_rows([0.9, 1.0], ids=names(2)).rows == ()
    assert keep_rows([0.0, 0.0], ids=names(2)).rows == ()
    assert keep_rows([], ids=[]).rows == ()
    assert keep_rows([0.0, 0.9], ids=names(2), above=-1).rows == (0,)


def test_places_are_evenly_spaced() -> None:
    assert (evenly(10, 2), evenly(10, 1), evenly(5, 5), evenly(7, 3)) == ([2, 7], [5], [0, 1, 2, 3, 4], [1, 3, 5])
    for n in range(1, 60):
        for k in range(1, n + 1):
            places = evenly(n, k)
            assert len(set(places)) == k
            assert 0 <= places[0] <= places[-1] < n
            gaps = {b - a for a, b in itertools.pairwise(places)}
            assert not gaps or max(gaps) - min(gaps) <= 1
            assert abs(places[0] - (n - 1 - places[-1])) <= 1  # as far from the easy end as from the hard one


def test_ties_are_settled_by_seed_and_id() -> None:
    p, ids = [0.5] * 20, names(20)
    chosen = [{ids[i] for i in keep_rows(p, ids=ids, k=5, seed=seed).rows} for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    backwards = keep_rows(p, ids=ids[::-1], k=5, seed=1).rows
    assert {ids[::-1][i] for i in backwards} == chosen[0]
    assert easy_to_hard([0.1, 0.9, 0.5], ids=names(3)) == [1, 2, 0]


# --- samples ---------------------------------------------------------------------------------------------------------------


def row(name: str, **meta: object) -> Sample:
    return Sample(id=name, task="vtg", query="he eats", video=VideoRef("a.mp4"), windows=((1.0, 2.0),), meta=meta)


def test_a_row_states_its_difficulty_in_percent() -> None:
    assert stated_p(row("a", difficulty=50)) == 0.5
    with pytest.raises(DataError, match=r"row 'a' states no difficulty .*vtgrl data difficulty"):
        stated_p(row("a"))
    for bad in (-1, 100.5, "50", True, math.nan):
        with pytest.raises(DataError, match=r"row 'a': meta\.difficulty is .*from 0"):
            stated_p(row("a", difficulty=bad))
    written = with_difficulty(row("a", difficulty=3, pred=[0, 1], vid="x"), 0.25, pred=None)
    assert dict(written.meta) == {"vid": "x", "difficulty": 25.0}
    assert with_difficulty(row("a"), 1.0, pred=(0.5, 2.0)).meta["pred"] == [0.5, 2.0]


def test_selecting_rows(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("vtgrl"), "propagate", True)
    rows = [row(f"q{i}", difficulty=d) for i, d in enumerate([0, 10, 30, 100])]
    assert select_rows([row("a")], SelectConfig()) == (row("a"),)
    assert [s.id for s in select_rows(rows, SelectConfig(k=3))] == ["q1", "q2", "q3"]
    assert [s.id for s in select_rows(rows, SelectConfig(k=9))] == ["q1", "q2", "q3"]
    assert "data.select.k=9: 4 rows, 3 of them with p > 0: all 3 are taken" in caplog.text
    with pytest.raises(ConfigError, match=r"data.select.k=9: 4 rows, 3 .*too few"):
        select_rows(rows, SelectConfig(k=9, strict=True))
    with pytest.raises(DataError, match="none of 1 rows has p > 0"):
        select_rows(rows[:1], SelectConfig(k=1))
    assert sorted_by_ease(rows, seed=0) == [3, 2, 1, 0]


def test_iou_in_place_of_percent_is_noticed(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("vtgrl"), "propagate", True)
    select_rows([row("a", difficulty=0.4), row("b", difficulty=1.0)], SelectConfig(k=1))
    assert "is this IoU itself?" in caplog.text
