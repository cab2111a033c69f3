"""Making results ahead of need: in order, bounded in number and bytes, errors where the result is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vtgrl.data.video.ahead import Ahead, Bound

pytestmark = pytest.mark.timeout(60)


class Kitchen:
    """Makes `key` x 10 with `sizes[key]` bytes once it is let."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes, self.begun, self.let = sizes, list[int](), threading.Semaphore(0)

    def make(self, key: int) -> tuple[int, int]:
        self.begun.append(key)
        assert self.let.acquire(timeout=30)
        if self.sizes[key] < 0:
            raise ValueError(f"{key} is off")
        return key * 10, self.sizes[key]


@pytest.fixture
def ahead() -> Iterator[Callable[..., Ahead[int, int]]]:
    made = []

    def make(kitchen: Kitchen, *, threads: int = 2, **bound: int) -> Ahead[int, int]:
        made.append((Ahead(kitchen.make, threads=threads, bound=Bound(**bound)), kitchen))
        return made[-1][0]

    yield make
    for one, kitchen in made:
        one.close()
        kitchen.let.release(100)


def wait_for(ready: Callable[[], bool]) -> None:
    for _ in range(1000):
        if ready():
            return
        time.sleep(0.01)
    pytest.fail("waited for ten seconds")


def test_bytes_hold_back_what_the_number_would_allow(ahead: Callable[..., Ahead[int, int]]) -> None:
    """Room for 100 bytes; what is being made counts as 40, what waits as what it is."""
    kitchen = Kitchen({1: 30, 2: 10, 3: 40, 4: 10})
    one = ahead(kitchen, threads=4, count=4, total=100, each=40)
    one.announce([1, 2, 3, 4])
    assert (one.begun, one.held) == ([1, 2], 80)
    kitchen.let.release(2)
    wait_for(lambda: len(kitchen.begun) == 3 and one.held == 80)  # 30 + 10 wait, 40 for the third: a fourth might need 40 more
    assert one.begun == [1, 2, 3]
    assert one.take(1) == 10
    assert one.begun == [2, 3, 4]
    kitchen.let.release(2)
    assert [one.take(key) for key in (2, 3, 4)] == [20, 30, 40]
    assert one.held == 0


def test_one_is_made_however_large(ahead: Callable[..., Ahead[int, int]]) -> None:
    kitchen = Kitchen({1: 500, 2: 500})
    one = ahead(kitchen, count=4, total=100, each=400)
    one.announce([1, 2])
    assert one.begun == [1]
    kitchen.let.release(2)
    assert one.take(1) == 10
    assert one.take(2) == 20


def test_number_bound_order_and_replacement(ahead: Callable[..., Ahead[int, int]]) -> None:
    kitchen = Kitchen(dict.fromkeys(range(10), 1))
    one = ahead(kitchen, threads=1, count=2, total=100, each=1)
    one.announce([5, 3, 5, 1])
    assert one.begun == [5, 3]
    assert one.take(1) is None  # not begun: made by whoever needs it, and not again
    kitchen.let.release()
    assert one.take(5) == 50
    assert one.begun == [3]
    wait_for(lambda: kitchen.begun == [5, 3])
    one.announce([7, 8])
    assert (one.begun, one.held) == ([7, 8], 3)
    kitchen.let.release(3)  # 3 is being made and goes nowhere
    assert [one.take(7), one.take(8), one.take(3)] == [70, 80, None]
    assert kitchen.begun == [5, 3, 7, 8]


def test_error_comes_where_it_is_taken_and_leaves_room(ahead: Callable[..., Ahead[int, int]]) -> None:
    kitchen = Kitchen({1: -1, 2: 1, 3: 1})
    one = ahead(kitchen, count=2, total=10, each=5)
    one.announce([1, 2, 3])
    kitchen.let.release(3)
    with pytest.raises(ValueError, match="1 is off"):
        one.take(1)
    assert [one.take(2), one.take(3), one.held] == [20, 30, 0]
