"""Counted work and memory of the packed row (no timing)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from policy_kit import Kit, answers, group

from vtgrl.bench.measure.work import flops, largest_tensor
from vtgrl.core.types import Sample
from vtgrl.model.guard import score_alone
from vtgrl.model.policy import Policy
from vtgrl.model.tiny import build_tiny
from vtgrl.model.types import PackedGroup, Prompt


def long_group(prompt: int, length: int, n: int) -> PackedGroup:
    """A text prompt of random ids and n answers."""
    (ids,) = answers((prompt,), seed=9)
    positions = torch.arange(prompt).expand(3, -1)
    record = Prompt(Sample("s", "text", "q"), "", ids, (), torch.zeros(0, dtype=torch.int64), positions, prompt, 0.0)
    return PackedGroup(record, answers((length,) * n))


def test_flops_of_a_group(tmp_path: Path) -> None:
    """P = 1024, R = 64, G = 8, forward and backward, 2 layers of width 128. The model run answer by answer (logits of
    every token, as its forward gives them) costs more than 6 times as much; with logits of the answers only, more than
    5.5 times (tokens alone: 8 x 1088 / 1536 = 5.67)."""
    kit = Kit(build_tiny(tmp_path / "m", family="text", layers=2), "text")
    policy, whole = kit.policy(), long_group(1024, 64, 8)

    def packed() -> None:
        scored(policy, whole)

    def one_by_one() -> None:
        for answer in whole.answers:
            score_alone(policy, whole.prompt, answer).sum().backward()

    def plain_forward() -> None:
        hf = kit.hf()
        for answer in whole.answers:
            ids = torch.tensor([[*whole.prompt.input_ids, *answer]])
            hf(input_ids=ids).logits[0, -65:-1].log_softmax(-1).gather(1, ids[0, -64:, None]).sum().backward()

    ours = flops(packed)
    assert flops(plain_forward) >= 6 * ours
    assert flops(one_by_one) >= 5.5 * ours


def test_tower_work_does_not_grow_with_the_group(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("qwen2_5_vl"), "qwen2_5_vl")
    policy = kit.policy()
    counts = []
    for n in (1, 8):
        policy.vision.calls = 0
        policy((group(kit, (4,) * n),))
        counts.append(policy.vision.calls)
    assert counts == [1, 1]


def scored(policy: Policy, whole: PackedGroup) -> None:
    policy((whole,)).logp_R.sum().backward()


def test_nothing_of_size_t_times_t_is_ever_made(tmp_path: Path) -> None:
    """T = 528, forward and backward; the model's own masked forward does make one (so the probe can see it)."""
    kit = Kit(build_tiny(tmp_path / "m", family="text", layers=2, hidden=32), "text")
    policy, whole = kit.policy(), long_group(400, 16, 8)
    tokens = whole.tokens
    assert tokens == 528
    assert largest_tensor(lambda: scored(policy, whole)) < tokens * tokens
    hf, ids, positions = kit.hf(), torch.ones(1, tokens, dtype=torch.int64), torch.arange(tokens)[None] % 100
    assert largest_tensor(lambda: hf(input_ids=ids, position_ids=positions)) >= tokens * tokens


class Saved:
    """Bytes that autograd keeps for backward, each storage once."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor


def saved_bytes(policy: Policy, whole: PackedGroup) -> int:
    saved = Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda t: t):
        out = policy((whole,))
    del out
    return sum(saved.storages.values())


def test_memory_grows_with_tokens_not_with_group_times_tokens(tmp_path: Path) -> None:
    """P = 512, R = 16: what backward keeps grows from G = 2 to G = 16 as the tokens do (544 -> 768), not 8-fold."""
    kit = Kit(build_tiny(tmp_path / "m", family="text", layers=2), "text")
    policy = kit.policy()
    small, large = (saved_bytes(policy, long_group(512, 16, n)) for n in (2, 16))
    assert large / small <= 1.05 * 768 / 544
