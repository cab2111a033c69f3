"""The policy's weights as a checkpoint has them, streamed in buckets: full tensors, adapters merged, plain names.

An engine that already holds a policy's weights only needs those that train (`trained_only`): a frozen tower is neither gathered nor
sent again.

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

    @property
    def trains(self) -> bool:
        """Whether an optimizer step changes the tensor."""
        return any(p.requires_grad for p in self.gather)


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


def trained_items(hf: nn.Module) -> list[WeightItem]:
    """The items that an optimizer step can change, and the linear layers beside them in the same module: an engine may hold
    q, k and v (or gate and up) as one weight, and vLLM fills such a weight anew from what it gets (measured: the rest is garbage).
    """
    items, linear = weight_items(hf), _linear_parents(hf)
    places = [linear.get(item.name.rpartition(".")[0], item.name) for item in items]
    moving = {place for item, place in zip(items, places, strict=True) if item.trains}
    return [item for item, place in zip(items, places, strict=True) if place in moving]


def _linear_parents(hf: nn.Module) -> dict[str, str]:
    """Plain path of every linear layer -> path of the module that it is in."""
    paths = [plain_name(f"{name}.").removesuffix(".") for name, module in hf.named_modules() if isinstance(module, nn.Linear)]
    return {path: path.rpartition(".")[0] for path in paths}


def iter_module_weights(hf: nn.Module, *, bucket_bytes: int, trained_only: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
    """(module name, full tensor in its own dtype) of every item (collective under ZeRO-3).

    A gathered or merged tensor is a copy that stays valid; an unsharded one is the parameter's own memory.
    """
    items = trained_items(hf) if trained_only else weight_items(hf)
    for bucket in plan_buckets([item.nbytes for item in items], bucket_bytes):
        chosen = [items[i] for i in bucket]
        with torch.no_grad(), _gathered([p for item in chosen for p in item.gather]):
            tensors = [(item.name, _full(item)) for item in chosen]
        while tensors:  # what was taken is free again before the next bucket is gathered
            yield tensors.pop(0)


def iter_weights(policy: Any, *, bucket_bytes: int, trained_only: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
    """(checkpoint name, full tensor) of every weight of `policy`, as vLLM's `load_weights` takes them (collective)."""
    for name, tensor in iter_module_weights(policy.hf, bucket_bytes=bucket_bytes, trained_only=trained_only):
        yield policy.family.checkpoint_name(name), tensor


def untrained_names(policy: Any) -> frozenset[str]:
    """Checkpoint names of the weights that `trained_only` leaves out."""
    sent = {item.name for item in trained_items(policy.hf)}
    return frozenset(policy.family.checkpoint_name(item.name) for item in weight_items(policy.hf) if item.name not in sent)


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
