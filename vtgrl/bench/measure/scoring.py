"""Two ways to score the same answers and train on them: what each costs and how far their results differ.

Shape legend: R answer tokens, all answers one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from vtgrl.bench.measure.cpu import interleaved
from vtgrl.bench.measure.kit import gradients, relative, with_zeros
from vtgrl.bench.measure.peer import Pair, pairs, score_batch
from vtgrl.bench.measure.work import flops
from vtgrl.model.policy import Policy
from vtgrl.model.types import PackedGroup, PackedRow


@dataclass(frozen=True)
class Way:
    """`parts`: forward passes, each giving log-probs of some answers with gradients to the parameters of `hf`, a plain
    Hugging Face model; together they score all answers, in an order that the ways of a comparison share."""

    hf: Any
    parts: Sequence[Callable[[], torch.Tensor]]

    def run(self) -> torch.Tensor:
        """From cleared gradients, every part forward and backward -> log-probs [R]. Each token has a weight of its own."""
        self.hf.zero_grad(set_to_none=True)
        done: list[torch.Tensor] = []
        for part in self.parts:
            logp_R = part()
            (logp_R * _weights(sum(map(len, done)), len(logp_R)).to(logp_R.device)).sum().backward()
            done.append(logp_R.detach())
        return torch.cat(done)


def _weights(start: int, count: int) -> torch.Tensor:
    return torch.arange(start, start + count).mul(0.7).cos()


def packed_way(policy: Policy, rows: Sequence[PackedRow]) -> Way:
    """Ours: a packed row a part."""
    return Way(policy.hf, [partial(_score_row, policy, row) for row in rows])


def _score_row(policy: Policy, row: PackedRow) -> torch.Tensor:
    return policy(row).logp_R


def padded_way(hf: Any, batches: Sequence[Sequence[Pair]], *, full_logits: bool) -> Way:
    """The usual way: a padded batch of whole sequences a part."""
    return Way(hf, [partial(score_batch, hf, batch, full_logits=full_logits) for batch in batches])


def single_way(hf: Any, row: Sequence[PackedGroup], *, full_logits: bool) -> Way:
    """The usual way, one sequence a part: nothing is padded."""
    return padded_way(hf, [[pair] for pair in pairs(row)], full_logits=full_logits)


def differences(ours: Way, baseline: Way) -> dict[str, float]:
    """Largest log-prob difference, and |difference| / |gradient| over all parameters together."""
    logp = (ours.run() - baseline.run()).abs().max().item()
    found = gradients(ours.hf)
    return {"logp": logp, "gradient_relative": relative(found, with_zeros(gradients(baseline.hf), found))}


def work_and_time(ways: Mapping[str, Way], *, repeats: int) -> dict[str, Any]:
    """FLOPs and seconds of a forward and backward pass of each way, by name."""
    counted = {name: flops(way.run) for name, way in ways.items()}
    seconds = interleaved({name: way.run for name, way in ways.items()}, repeats=repeats)
    return {"flops": counted, "seconds": seconds}


def times_less(costs: Mapping[str, float], *, ours: str = "ours") -> dict[str, float]:
    """How many times more than `ours` each other way costs."""
    return {name: cost / costs[ours] for name, cost in costs.items() if name != ours}
