"""The self-check of a run's first batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from policy_kit import FAMILIES, Kit, group

from vtgrl.core.errors import RunError
from vtgrl.model.guard import default_tolerance, exactness_check
from vtgrl.model.types import PackedGroup


@pytest.mark.parametrize("name", FAMILIES)
def test_a_good_model_passes_and_is_left_as_it_was(tiny_dir: Callable[[str], Path], name: str) -> None:
    kit = Kit(tiny_dir(name), name)
    policy = kit.policy().train()
    policy.hf.lm_head.eval()
    assert 0 < exactness_check(policy, group(kit, (7, 1, 3))) <= 2e-5
    assert policy.training
    assert not policy.hf.lm_head.training
    assert policy.hf.get_decoder().config._attn_implementation == "vtgrl_packed"
    assert all(p.grad is None for p in policy.parameters())


def test_one_answer_long_answers_and_placeholders_among_them(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("qwen2_5_vl"), "qwen2_5_vl")
    one = group(kit, (300,))
    strange = PackedGroup(one.prompt, ((5, kit.config.video_token_id, kit.config.image_token_id, 6),))
    policy = kit.policy()
    assert exactness_check(policy, one) <= 2e-5
    assert exactness_check(policy, strange) <= 2e-5


def test_a_model_that_drops_the_layout_is_caught(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("qwen2_5_vl"), "qwen2_5_vl")
    policy = kit.policy()
    policy.hf.get_decoder().config._attn_implementation = "eager"
    with pytest.raises(RunError, match=r"differ by [0-9.e-]+ \(limit 0.0001\)"):
        exactness_check(policy, group(kit, (7, 5)))


def test_a_model_that_scales_logits_after_the_head_is_caught(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("text"), "text")
    policy = kit.policy()
    original = policy.hf.forward

    def scaled(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        out.logits = out.logits * 2
        return out

    policy.hf.forward = MethodType(scaled, policy.hf)
    with pytest.raises(RunError, match="cannot be trained in packed rows"):
        exactness_check(policy, group(kit, (7, 5)))


def test_broken_weights_are_caught(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("text"), "text")
    policy = kit.policy()
    with torch.no_grad():
        policy.hf.lm_head.weight.fill_(float("nan"))
    with pytest.raises(RunError, match="nan"):
        exactness_check(policy, group(kit, (3,)))


def test_tolerance_follows_the_dtype(tiny_dir: Callable[[str], Path]) -> None:
    assert default_tolerance(torch.float32) == 1e-4
    assert default_tolerance(torch.bfloat16) == 0.25
    kit = Kit(tiny_dir("qwen3_vl"), "qwen3_vl")
    assert exactness_check(kit.policy(torch.bfloat16), group(kit, (7, 5))) <= 0.1
    with pytest.raises(RunError):
        exactness_check(kit.policy(), group(kit, (7, 5)), tolerance=0.0)
