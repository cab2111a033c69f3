"""Samples of different lengths one after the other in a row, against a batch padded to its longest sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vtgrl.bench.measure.kit import Kit, TinyConfig, answers, tiny_kit
from vtgrl.bench.measure.peer import Pair, pairs
from vtgrl.bench.measure.scoring import differences, packed_way, padded_way, times_less, work_and_time
from vtgrl.bench.measure.work import module_flops
from vtgrl.bench.types import BenchResult
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import opt, register
from vtgrl.model.packing import make_rows
from vtgrl.model.types import PackedGroup


@dataclass(frozen=True)
class PackingConfig(TinyConfig):
    """Text samples with one answer each, as in supervised fine-tuning."""

    samples: int = opt(16, "samples", ge=1)
    shortest: int = opt(32, "tokens of the shortest prompt", ge=16)
    longest: int = opt(1024, "tokens of the longest prompt", ge=16)
    answer: int = opt(64, "most tokens of an answer", ge=1)
    row: int = opt(4096, "packed tokens of a row at most", ge=1)
    batch: int = opt(8, "samples of a padded batch", ge=1)
    seed: int = opt(0, "of the lengths, which are spread evenly over the logarithm")
    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "packing", config=PackingConfig)
def packing(*, config: PackingConfig) -> BenchResult:
    """Ragged samples in padding-free rows against padded batches: FLOPs of the layers below the head."""
    if config.shortest > config.longest:
        raise ConfigError(f"shortest={config.shortest} is above longest={config.longest}")
    with tiny_kit("text", config) as kit:
        details = _measure(kit, _samples(kit, config), config)
    return BenchResult(
        bench="packing",
        ratio=details["flops_ratio_below_the_head"]["padded"],
        exactness=max(details["difference"].values()),
        unit="FLOPs below the head, forward and backward",
        baseline=f"batches of {config.batch} samples as they come, padded to the longest, plain Hugging Face forward and backward",
        details=details,
    )


def _samples(kit: Kit, config: PackingConfig) -> list[PackedGroup]:
    g = torch.Generator().manual_seed(config.seed)
    spread = (config.longest / config.shortest) ** torch.rand(config.samples, generator=g)
    prompts = (config.shortest * spread).round().int().tolist()
    lengths = torch.randint(1, config.answer + 1, (config.samples,), generator=g).tolist()
    texts = answers(lengths, seed=config.seed)
    return [PackedGroup(kit.prompt("", tokens=n), (a,)) for n, a in zip(prompts, texts, strict=True)]


def _measure(kit: Kit, samples: Sequence[PackedGroup], config: PackingConfig) -> dict[str, Any]:
    policy, hf = kit.policy(), kit.hf()
    rows = make_rows(samples, max_tokens=config.row, hidden=config.hidden)
    in_rows = pairs([sample for row in rows for sample in row])  # the order in which the rows hold them
    as_they_come = _batches(pairs(samples), config.batch)
    by_length = _batches(sorted(pairs(samples), key=_length), config.batch)
    ways = {
        "ours": packed_way(policy, rows),
        "padded": padded_way(hf, as_they_come, full_logits=True),
        "padded_by_length": padded_way(hf, by_length, full_logits=True),
    }
    measured = work_and_time(ways, repeats=config.repeats)
    below = {
        name: measured["flops"][name] - module_flops(way.run, way.hf.lm_head, root=policy if name == "ours" else hf)[0]
        for name, way in ways.items()
    }
    return {
        "rows": len(rows),
        "tokens": {"ours": sum(map(_length, in_rows)), "padded": _padded(as_they_come), "padded_by_length": _padded(by_length)},
        "difference": differences(ways["ours"], padded_way(hf, _batches(in_rows, config.batch), full_logits=True)),
        "flops_ratio_below_the_head": times_less(below),
        "flops_ratio": times_less(measured["flops"]),
        "time_ratio": times_less(measured["seconds"]),
        **measured,
    }


def _batches(samples: list[Pair], size: int) -> list[list[Pair]]:
    return [samples[i : i + size] for i in range(0, len(samples), size)]


def _length(pair: Pair) -> int:
    return len(pair[0].input_ids) + len(pair[1])


def _padded(batches: list[list[Pair]]) -> int:
    return sum(len(batch) * max(map(_length, batch)) for batch in batches)
