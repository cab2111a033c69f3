"""The measuring tools against answers that are known."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vtgrl.bench.measure.cpu import child_time, interleaved
from vtgrl.bench.measure.memory import peak_memory
from vtgrl.bench.measure.work import calls, flops, largest_tensor, module_flops
from vtgrl.core.errors import RunError

# ---- counted work ---------------------------------------------------------------------------------------------------------


def test_flops_of_matrix_products() -> None:
    a, b, total = torch.randn(3, 5), torch.randn(5, 7), torch.zeros(3, 7)
    assert flops(lambda: a @ b) == 2 * 3 * 5 * 7
    assert flops(lambda: total.addmm_(a, b)) == 2 * 3 * 5 * 7
    assert flops(lambda: torch.mm(a, b, out=total)) == 2 * 3 * 5 * 7
    assert flops(lambda: a + 1) == 0


def test_flops_of_attention_forward_and_backward() -> None:
    """Two products of [T, E] x [E, T] a head forward; five backward, the scores being made again."""
    heads, tokens, width = 3, 10, 8
    q, k, v = (torch.randn(1, heads, tokens, width, requires_grad=True) for _ in range(3))
    product = 2 * heads * tokens * tokens * width
    assert flops(lambda: F.scaled_dot_product_attention(q.detach(), k.detach(), v.detach())) == 2 * product
    assert flops(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()) == (2 + 5) * product


def test_flops_and_calls_of_modules() -> None:
    first, second, unused = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(1, 1)
    both, x = nn.Sequential(first, second), torch.randn(5, 4)
    first.unused = unused
    forward = [2 * 5 * 4 * 6, 2 * 5 * 6 * 2, 0]
    assert module_flops(lambda: both(x), first, second, unused, root=both) == forward
    trained = module_flops(lambda: both(x).sum().backward(), first, second, root=both)
    assert trained == [2 * forward[0], 3 * forward[1]]  # the input of the first needs no gradient
    assert sum(trained) == flops(lambda: both(x).sum().backward())
    assert calls(lambda: [both(x), first(x)], both, first, unused) == [1, 2, 0]


def test_largest_tensor() -> None:
    a = torch.ones(10, 1)
    assert largest_tensor(lambda: (a @ a.t()).sum()) == 100
    assert largest_tensor(lambda: a.sum()) == 1


# ---- memory ---------------------------------------------------------------------------------------------------------------

MB = 2**20
TARGETS = """
import gc
import torch

def after_a_larger_one():
    before = torch.ones(192 * 2**18).exp()  # 384 MB at the peak, freed before the work: must not count, and not hide it
    del before
    kept = torch.ones(32 * 2**18)           # alive before the work: must not count
    return lambda: kept.exp()

def garbage():
    gc.disable()
    cycle = [torch.ones(64 * 2**18)]
    cycle.append(cycle)                     # dies when somebody collects: that has to be before the work, not in it
    del cycle
    def work():
        gc.collect()
        return torch.ones(32 * 2**18)
    return work

def two_at_a_time(megabytes):
    def work():
        for _ in range(3):
            a = torch.ones(megabytes * 2**18)
            b = a.exp()
            view = b.view(-1, 2)[1:]        # no memory of its own
            a.add_(1)
            del a, b, view
    return work

def trained(megabytes):
    weight = torch.ones(megabytes * 2**18, requires_grad=True)
    return lambda: (weight.exp().exp()).sum().backward()

def broken():
    raise ValueError("this one is broken")
"""


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "memory_targets.py").write_text(TARGETS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "memory_targets"


def test_memory_of_what_is_alive_at_the_same_time(targets: str) -> None:
    peak = peak_memory(f"{targets}:two_at_a_time", megabytes=32)
    assert peak.tracked == 64 * MB
    assert peak.resident == pytest.approx(64 * MB, abs=6 * MB)


def test_memory_of_before_the_work_does_not_count(targets: str) -> None:
    for name in ("after_a_larger_one", "garbage"):
        peak = peak_memory(f"{targets}:{name}")
        assert peak.tracked == 32 * MB
        assert peak.resident == pytest.approx(32 * MB, abs=6 * MB)


def test_memory_of_a_backward_pass(targets: str) -> None:
    """Two results kept for backward, then a gradient for each step back while the other is alive."""
    peak = peak_memory(f"{targets}:trained", megabytes=16)
    assert 48 * MB <= peak.tracked <= 64 * MB + 100
    assert peak.resident == pytest.approx(peak.tracked, abs=8 * MB)


def test_a_target_that_fails_says_why(targets: str) -> None:
    with pytest.raises(RunError, match=r"memory_targets:broken failed \(exit 1\).*this one is broken"):
        peak_memory(f"{targets}:broken")


# ---- CPU time -------------------------------------------------------------------------------------------------------------


def test_cpu_time_counts_work_and_not_sleep() -> None:
    """The busy way works until the clock that is read has moved on by 0.05 s; the idle one only sleeps, and longer."""

    def busy() -> None:
        start = time.process_time()
        while time.process_time() - start < 0.05:
            pass

    found = interleaved({"busy": busy, "idle": lambda: time.sleep(0.1)}, repeats=2)
    assert found["busy"] >= 0.05 > found["idle"]


def test_cpu_time_of_child_processes() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass"
    found = interleaved({"child": lambda: subprocess.run([sys.executable, "-c", code], check=True)}, repeats=1, clock=child_time)
    assert found["child"] >= 0.2


def test_ways_alternate_on_one_thread_and_the_least_counts() -> None:
    now, log = [0.0], []

    def way(name: str, costs: list[float]) -> Callable[[], None]:
        def work() -> None:
            log.append(name)
            assert torch.get_num_threads() == 1
            now[0] += costs.pop(0)

        return work

    before = torch.get_num_threads()
    assert interleaved({"a": way("a", [3, 1, 2]), "b": way("b", [9, 8, 7])}, repeats=3, clock=lambda: now[0]) == {"a": 1.0, "b": 7.0}
    assert "".join(log) == "abbaab"
    assert torch.get_num_threads() == before
