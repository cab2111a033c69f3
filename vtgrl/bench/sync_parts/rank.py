"""One rank of a real ZeRO-3 run that publishes its weights: `python -m vtgrl.bench.sync_parts.rank SPEC.json`, started as a rank.

SPEC: `Spec` as JSON. Writes OUT.RANK.json: `Found`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
from torch import nn

from vtgrl.bench.measure.kit import Kit, answers
from vtgrl.bench.measure.memory import measure
from vtgrl.core.errors import VtgrlError
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.model.load import load_model
from vtgrl.model.types import PackedGroup
from vtgrl.rollout.sync import full_numel, iter_module_weights, plain_name, weight_items
from vtgrl.train.ds_config import ds_config
from vtgrl.train.engine_ds import DsEngine, start_deepspeed
from vtgrl.train.world import World, join_world

MIB = 1 << 20
Way = Literal["ours", "at_once"]


@dataclass(frozen=True)
class Spec:
    """folder, family: the model. way: how its weights are sent. keys: recipe keys. out: where the results go."""

    folder: str
    family: str
    way: Way
    bucket_mb: int
    keys: tuple[str, ...]
    out: str


@dataclass(frozen=True)
class Published:
    """One publish of this rank. gathered: bytes of all parameters that ranks put together, at_once: of those whole at the same time.
    tracked, resident: peak growth of memory."""

    gathered: int
    at_once: int
    tracked: int
    resident: int


@dataclass(frozen=True)
class Found:
    """first: publish of all weights; later: after an optimizer step. difference: largest, between what arrived and the policy's weights."""

    weights: int
    first: Published
    later: Published
    difference: float


def main(spec_file: str) -> None:
    """Load, shard, publish, step, publish, compare."""
    spec = Spec(**json.loads(Path(spec_file).read_text()))
    torch.set_num_threads(1)
    world = join_world()
    found = _run(spec, world)
    Path(f"{spec.out}.{world.rank}.json").write_text(json.dumps(asdict(found)))
    world.barrier()


def _run(spec: Spec, world: World) -> Found:
    deepspeed = start_deepspeed(world)
    recipe = load_recipe(GrpoRecipe, overrides=[f"model.path={spec.folder}", "zero.stage=3", *spec.keys])
    loaded = load_model(spec.folder, dtype=recipe.model.dtype, freeze=recipe.model.freeze, lora=recipe.model.lora)
    policy = loaded.policy.to(world.device)
    received = {item.name: torch.zeros_like(item.weight, device="cpu") for item in weight_items(policy.hf)}
    engine = DsEngine(policy, config=ds_config(recipe, world_size=world.size), world=world)
    first = _publish(spec, deepspeed, policy.hf, received, again=False)
    _optimizer_step(spec, engine)
    later = _publish(spec, deepspeed, policy.hf, received, again=True)
    true = dict(iter_module_weights(policy.hf, bucket_bytes=1 << 40))
    difference = max((received[n].double() - t.double().cpu()).abs().max().item() for n, t in true.items())
    return Found(sum(t.nbytes for t in received.values()), first, later, difference)


def _optimizer_step(spec: Spec, engine: DsEngine) -> None:
    """Weights that differ from the start model's."""
    kit = Kit(Path(spec.folder), spec.family)
    group = PackedGroup(kit.prompt("When does it happen?"), answers([5, 3]))
    engine.backward(-engine.forward((group,), temperature=1.0).logp_R.sum(), last=True)
    engine.step(lr=1e-3)


def _publish(spec: Spec, deepspeed: Any, hf: nn.Module, received: dict[str, torch.Tensor], *, again: bool) -> Published:
    def work() -> None:
        if spec.way == "ours":
            _in_buckets(hf, received, bucket_bytes=spec.bucket_mb * MIB, trained_only=again)
        else:
            _at_once(deepspeed, hf, received)

    with _counting(deepspeed) as sizes:
        peak = measure(work)
    return Published(sum(sizes), max(sizes, default=0), peak.tracked, peak.resident)


def _in_buckets(hf: nn.Module, received: Mapping[str, torch.Tensor], *, bucket_bytes: int, trained_only: bool) -> None:
    """What our engines do with `vtgrl.rollout.sync`."""
    for name, tensor in iter_module_weights(hf, bucket_bytes=bucket_bytes, trained_only=trained_only):
        received[name].copy_(tensor)


def _at_once(deepspeed: Any, hf: nn.Module, received: Mapping[str, torch.Tensor]) -> None:
    """The whole model on every rank, then its state dict (a model without adapters)."""
    with torch.no_grad(), deepspeed.zero.GatheredParameters(list(hf.parameters())):
        for name, param in hf.named_parameters():
            received[plain_name(name)].copy_(param)


@contextmanager
def _counting(deepspeed: Any) -> Iterator[list[int]]:
    """Bytes of the sharded parameters of every gather."""
    sizes: list[int] = []
    gather = deepspeed.zero.GatheredParameters

    def counted(params: Any, *args: Any, **kwargs: Any) -> Any:
        away = [p for p in params if hasattr(p, "ds_id") and p.numel() != full_numel(p)]
        sizes.append(sum(full_numel(p) * p.element_size() for p in away))
        return gather(params, *args, **kwargs)

    with mock.patch.object(deepspeed.zero, "GatheredParameters", counted):
        yield sizes


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except VtgrlError as error:
        sys.exit(f"bench sync: {error}")
