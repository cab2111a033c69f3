"""The TaRO recipes hold every published value (../shared/specs/taro.md, section 7), and ours where it is better."""

from __future__ import annotations

from typing import Any

import pytest

from vtgrl.core.recipe import load_recipe, to_plain
from vtgrl.core.schema import GrpoRecipe

NAMES = ("taro", "taro_qwen2_5_vl_7b", "taro_qwen3_vl_8b")


def recipe(name: str) -> GrpoRecipe:
    return load_recipe(GrpoRecipe, file=name)


def part(name: str, value: Any) -> dict[str, Any]:
    """A component of a list, as a dict."""
    return next(to_plain(c) for c in value if c.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_published_values(name: str) -> None:
    r = recipe(name)
    small = name == "taro_qwen3_vl_8b"
    assert (r.data.max_prompt_tokens, r.rollout.sampling.max_tokens) == ((7680, 512) if small else (7168, 1024))
    assert r.validation.max_tokens == r.rollout.sampling.max_tokens
    assert (r.rollout.n, r.train.batch, r.train.epochs, r.algo.updates, r.algo.epochs) == (8, 16, 3, 1, 1)
    assert (r.optim.lr, r.optim.schedule, r.optim.warmup_steps, r.optim.weight_decay, r.optim.grad_clip) == (1e-6, "constant", 0, 0.01, 1.0)
    assert to_plain(r.algo.kl) == {"coef": 0.01, "kind": "k3", "where": "loss"}
    assert to_plain(r.algo.loss) == {"name": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0}
    assert to_plain(r.algo.advantage) == {"name": "grpo", "std": True, "eps": 1e-6}
    assert (r.algo.aggregate, r.algo.entropy_coef) == ("token_mean", 0.0)
    assert (r.rollout.sampling.temperature, r.rollout.sampling.top_p, r.rollout.sampling.top_k) == (1.0, 1.0, -1)
    assert (r.train.save_every, r.train.val_every, r.validation.temperature) == (50, 50, 0.0)
    assert set(r.model.freeze) == {"vision", "merger"}
    assert (r.video.fps, r.video.max_frames) == (2.0, 768)
    assert (r.rollout.engine.config.gpu_memory_utilization, r.rollout.engine.config.enforce_eager) == (0.6, True)


@pytest.mark.parametrize("name", NAMES)
def test_curriculum_and_rewards(name: str) -> None:
    r = recipe(name)
    plan = to_plain(r.curriculum)
    assert (plan["name"], plan["warmup_epochs"], plan["schedule"], plan["p"]) == ("imitate_then_explore", 1.0, "const", 1.0)
    assert (plan["group_share"], plan["budget"]) == (0.75, 0.5)  # ours: T19, T13
    assert to_plain(r.algo.prefixed) == {"rule": "mask", "beta": 1.0, "prefix_weight": 1.0}
    reward = part("temporal_sensitivity", r.reward)
    assert (reward["alpha"], reward["tau"], reward["margin"], reward["weight"]) == (0.3, 0.7, 0.0, 1.0)
    assert part("boundary_shuffle", r.probes)["radius_s"] == 3.0
    assert part("format", r.reward)["form"] == "strict"  # ours: T10
    assert (part("iou", r.reward)["form"], part("iou", r.reward)["shape"]) == ("vtgrl", "auto")  # ours: T9, T11, T12
    assert 0 < r.data.hold_out < 0.1  # ours: E1


def test_the_models() -> None:
    assert [recipe(name).model.path.split("/")[1] for name in NAMES] == [
        "Qwen2.5-VL-3B-Instruct",
        "Qwen2.5-VL-7B-Instruct",
        "Qwen3-VL-8B-Instruct",
    ]


def test_the_small_ones_share_their_form() -> None:
    from vtgrl.core.schema import SftRecipe

    start, run = load_recipe(SftRecipe, file="tiny/taro_sft"), recipe("tiny/taro")
    assert run.data.prompt.config.instruction is start.data.prompt.config.instruction is False
    assert start.data.prompt.config.event_share <= 0.2  # what the curriculum teaches can be seen
    assert run.validation.max_tokens == run.rollout.sampling.max_tokens
