"""Which probes a recipe runs, and contradictions in their settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtgrl.core.errors import ConfigError
from vtgrl.core.probes import needed_probes
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe

SENSITIVE = "reward=[format, iou, temporal_sensitivity]"


def recipe(*overrides: str) -> GrpoRecipe:
    return load_recipe(GrpoRecipe, overrides=list(overrides))


def test_a_reward_brings_its_probe_with_defaults() -> None:
    assert needed_probes(recipe().reward, ()) == ()
    (probe,) = needed_probes(recipe(SENSITIVE).reward, ())
    assert (probe.name, probe.config.radius_s, probe.config.baseline) == ("boundary_shuffle", 3.0, "sampler")


def test_settings_reach_the_probe_and_two_rewards_share_it() -> None:
    both = "reward=[temporal_sensitivity, {name: temporal_sensitivity, alpha: 0.1}]"
    made = recipe(both, "probes=[{name: boundary_shuffle, radius_s: 1, granularity: patch}]")
    (probe,) = needed_probes(made.reward, made.probes)
    assert (probe.config.radius_s, probe.config.granularity) == (1.0, "patch")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([SENSITIVE, "probes=[{name: boundary_shuffle, radius: 1}]"], "unknown key 'radius'"),
        ([SENSITIVE, "probes=[{name: boundary_shufle}]"], "unknown probe 'boundary_shufle'; did you mean 'boundary_shuffle'?"),
        ([SENSITIVE, "probes=[{name: boundary_shuffle, radius_s: 0}]"], "outside its range"),
        (["probes=[boundary_shuffle]"], "no reward of this recipe needs 'boundary_shuffle'"),
        ([SENSITIVE, "probes=[boundary_shuffle, boundary_shuffle]"], "is set 2 times"),
        ([SENSITIVE, "rollout.sampling.top_p=0.9"], "rollout.sampling.top_p renormalises the sampler's log-probs"),
        ([SENSITIVE, "rollout.sampling.top_k=20"], "rollout.sampling.top_k renormalises the sampler's log-probs"),
        ([SENSITIVE, "curriculum=imitate_then_explore", "probes=[{name: boundary_shuffle, tokens: all}]"], "tokens: all holds"),
    ],
)
def test_contradictions_are_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recipe(*overrides)
    assert says in str(caught.value)


def test_the_trainers_baseline_allows_them() -> None:
    trainer = "probes=[{name: boundary_shuffle, tokens: all, baseline: trainer}]"
    made = recipe(SENSITIVE, trainer, "rollout.sampling.top_p=0.9", "curriculum=imitate_then_explore")
    (probe,) = needed_probes(made.reward, made.probes)
    assert (probe.config.baseline, probe.config.tokens) == ("trainer", "all")
    assert (made.rollout.sampling.top_p, made.curriculum.name) == (0.9, "imitate_then_explore")


def test_a_need_that_is_no_probe(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from vtgrl.core.registry import register\n@register('reward', 'mine', needs=('entropy',))\ndef mine(rows, *, config):\n    ...\n"
    )
    with pytest.raises(ConfigError, match="needs 'entropy': rewards can need probes only"):
        recipe(f"reward=[{tmp_path / 'mine.py'}:mine]")
