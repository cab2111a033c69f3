"""The policy's weights as a checkpoint has them, streamed in buckets: full tensors, adapters merged, plain names.

Under ZeRO-3 a parameter holds no elements between uses (`numel()` is 0): sizes come from `ds_numel`, and a bucket is
gathered on all ranks at once, so every rank has to iterate to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, eq=False)
class WeightItem:
    """One tensor to send. `gather`: the parameters it is made of (an adapted weight needs its A and B as well)."""

    name: str
    weight: nn.Parameter
    gather: tuple[nn.Parameter, ...]
    adapter: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters when gathered."""
        return sum(full_numel(p) * p.element_size() for p in self.gather)


def full_numel(param: nn.Parameter) -> int:
    """Elements of the whole parameter, sharded or not."""
    return int(getattr(param, "ds_numel", param.numel()))


def is_sharded(module: nn.Module) -> bool:
    """Whether ZeRO-3 holds this module's parameters."""
    return any(hasattr(p, "ds_id") for p in module.parameters())


def plan_buckets(sizes: Sequence[int], bucket_bytes: int) -> list[list[int]]:
    """Consecutive indices whose sizes add up to at most `bucket_bytes`; a larger item gets a bucket of its own.

    Example: plan_buckets([3, 3, 9, 1], 6) == [[0, 1], [2], [3]]
    """
    buckets: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if not buckets or size > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(index)
        room -= size
    return buckets


def weight_items(hf: nn.Module) -> list[WeightItem]:
    """Every tensor of a checkpoint of this model, in module order. Adapter tensors are never items of their own; a tied
    head is the embedding's own parameter, so it appears once, as in a checkpoint."""
    adapters = _adapter_layers(hf)
    own = {id(p): layer for layer in adapters.values() for p in layer.base_layer.parameters()}
    extra = {id(p) for layer in adapters.values() for p in layer.parameters()} - own.keys()
    items = []
    for name, param in hf.named_parameters():
        if id(param) in extra:
            continue
        layer = own.get(id(param)) if name.endswith(".weight") else None
        low_rank = tuple(p for p in layer.parameters() if id(p) in extra) if layer is not None else ()
        items.append(WeightItem(plain_name(name), param, (param, *low_rank), layer))
    return items


def plain_name(name: str) -> str:
    """Parameter name without the level that an adapter puts in."""
    return name.replace(".base_layer.", ".")


def iter_module_weights(hf: nn.Module, *, bucket_bytes: int) -> Iterator[tuple[str, torch.Tensor]]:
    """(module name, full tensor in its own dtype) of every item (collective under ZeRO-3).

    A gathered or merged tensor is a copy that stays valid; an unsharded one is the parameter's own memory.
    """
    items = weight_items(hf)
    for bucket in plan_buckets([item.nbytes for item in items], bucket_bytes):
        chosen = [items[i] for i in bucket]
        with torch.no_grad(), _gathered([p for item in chosen for p in item.gather]):
            tensors = [(item.name, _full(item)) for item in chosen]
        yield from tensors


def iter_weights(policy: Any, *, bucket_bytes: int) -> Iterator[tuple[str, torch.Tensor]]:
    """(checkpoint name, full tensor) of every weight of `policy`, as vLLM's `load_weights` takes them (collective)."""
    for name, tensor in iter_module_weights(policy.hf, bucket_bytes=bucket_bytes):
        yield policy.family.checkpoint_name(name), tensor


def _adapter_layers(hf: nn.Module) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in hf.named_modules() if isinstance(module, LoraLayer)}


def _gathered(params: Sequence[nn.Parameter]) -> AbstractContextManager[Any]:
    sharded = [p for p in params if hasattr(p, "ds_id")]
    if not sharded:
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(sharded)


def _full(item: WeightItem) -> torch.Tensor:
    weight = item.weight.detach()
    if item.adapter is not None and not item.adapter.merged:
        return _merged(weight, item.adapter)
    return weight.clone() if hasattr(item.weight, "ds_id") else weight


def _merged(weight: torch.Tensor, layer: Any) -> torch.Tensor:
    """W + alpha / r * B A, summed in fp32 and kept in W's dtype."""
    total = weight.to(torch.float32, copy=True)
    for adapter in layer.active_adapters:
        total += layer.get_delta_weight(adapter).to(total)
    return total.to(weight.dtype)
