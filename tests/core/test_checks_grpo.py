"""Contradictions in a GRPO recipe."""

import pytest

from vtgrl.core.errors import ConfigError
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo"])
def test_one_answer_a_prompt_cannot_be_compared_with_its_group(advantage):
    with pytest.raises(ConfigError, match="rollout.n: advantage '" + advantage):
        load_recipe(GrpoRecipe, overrides=["rollout.n=1", f"algo.advantage={advantage}"])
    load_recipe(GrpoRecipe, overrides=["rollout.n=1", "algo.advantage=reinforce_pp"])


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["rollout.n=0"], "rollout.n = 0 is outside its range"),
        (["train.batch=10", "algo.updates=4"], "cannot be split into 4 equal optimizer steps"),
        (["rollout.sampling.temperature=0"], "all 8 answers of a group would be the same"),
        (["algo.advantage=grop"], "unknown advantage 'grop'; did you mean 'grpo'?"),
        (["reward.5.weight=2"], "reward has no item '5'"),
        (["reward=[]"], "reward: is empty"),
    ],
)
def test_nonsense_is_refused(overrides, says):
    with pytest.raises(ConfigError, match="command line") as caught:
        load_recipe(GrpoRecipe, overrides=overrides)
    assert says in str(caught.value)


def test_a_list_item_and_a_component_are_reached_from_the_command_line():
    recipe = load_recipe(GrpoRecipe, overrides=["reward.1.weight=2", "algo.advantage=rloo", "data.prompt.text_first=yes"])
    assert [part.name for part in recipe.reward] == ["format", "iou"]
    assert recipe.reward[1].config.weight == 2.0
    assert recipe.algo.advantage.name == "rloo"
    assert recipe.data.prompt.config.text_first is True
