"""Counted work: the same number on every machine and at every load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, mm_flop, sdpa_backward_flop_count, sdpa_flop_count


def flops(work: Callable[[], object]) -> int:
    """Floating-point operations of `work()`: matrix products, convolutions and attention, forward and backward; a
    multiplication and its addition are two. An attention call counts all query-key pairs, causal or not."""
    with _counter() as counter:
        work()
    return int(counter.get_total_flops())


def module_flops(work: Callable[[], object], *modules: nn.Module, root: nn.Module) -> list[int]:
    """The part of `flops(work)` that each of `modules` does (0: not called).

    Args:
        root: contains them, and is the outermost module that `work` calls. In backward, a module's part ends when the
            gradient of its positional inputs is there; without such inputs it goes on to the end of the pass, so ask only
            for heads (`head(hidden)`) and for what runs first (a vision tower).
    """
    with _counter() as counter:
        work()
    counts = counter.get_flop_counts()
    names = {module: f"{type(root).__name__}.{name}" for name, module in root.named_modules()}
    return [int(sum(counts[names[module]].values())) if names[module] in counts else 0 for module in modules]


def calls(work: Callable[[], object], *modules: nn.Module) -> list[int]:
    """How often `work()` calls each of `modules`."""
    found = [0] * len(modules)

    def counter(i: int) -> Callable[..., None]:
        def count(*_: Any) -> None:
            found[i] += 1

        return count

    handles = [module.register_forward_pre_hook(counter(i)) for i, module in enumerate(modules)]
    try:
        work()
    finally:
        for handle in handles:
            handle.remove()
    return found


def largest_tensor(work: Callable[[], object]) -> int:
    """Elements of the largest tensor that any operation of `work()` makes."""
    with _Largest() as mode:
        work()
    return mode.seen


@contextmanager
def _counter() -> Iterator[FlopCounterMode]:
    with FlopCounterMode(display=False, custom_mapping=_UNCOUNTED) as counter:
        yield counter


def _attention(q: Any, k: Any, v: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return sdpa_flop_count(q, k, v)


def _attention_backward(grad: Any, q: Any, k: Any, v: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return sdpa_backward_flop_count(grad, q, k, v)


def _added_product(total: Any, a: Any, b: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return mm_flop(a, b)


_UNCOUNTED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    torch.ops.aten.addmm_: _added_product,
}
"""What torch's counter does not know: the CPU attention kernels and products added in place."""


class _Largest(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.seen = max(self.seen, tensor.numel())
        return out
