"""Every shipped recipe loads, and every key of the published ones has a comment or speaks for itself in a commented line."""

import pytest

from vtgrl.core.recipe import find_recipe, load_recipe, recipe_names
from vtgrl.core.schema import GrpoRecipe, SftRecipe

PUBLISHED = [name for name in recipe_names() if "/" not in name]


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_loads(name):
    cls = SftRecipe if "vtgrl train sft" in find_recipe(name).read_text() or "sft" in name else GrpoRecipe
    assert isinstance(load_recipe(cls, file=name), cls)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_key_of_a_published_recipe_has_a_comment(name):
    lines = [line for line in find_recipe(name).read_text().splitlines() if line.startswith((" ", "-"))]
    bare = [line for line in lines if "#" not in line]
    assert [line for line in bare if "sampling" not in line] == []


def test_published_numbers():
    """../shared/specs/taro.md sections 7 and 8."""
    taro, time_r1 = (load_recipe(GrpoRecipe, file=name) for name in ("taro", "time_r1"))
    for recipe in (taro, time_r1):
        assert (recipe.rollout.n, recipe.train.batch, recipe.optim.lr, recipe.optim.grad_clip) == (8, 16, 1e-6, 1.0)
        assert (recipe.video.fps, recipe.video.max_frames, recipe.rollout.sampling.temperature) == (2.0, 768, 1.0)
        assert recipe.algo.kl.kind == "k3"
    assert (taro.algo.kl.coef, time_r1.algo.kl.coef) == (0.01, 0.04)
    assert (taro.algo.advantage.config.eps, time_r1.algo.advantage.config.eps) == (1e-6, 1e-4)
    assert (taro.model.freeze, time_r1.model.freeze) == (("vision", "merger"), ("vision",))
    assert (taro.train.epochs, time_r1.train.epochs) == (3, 5)
    assert taro.algo.loss.config.dual_clip == 3.0
    large = load_recipe(GrpoRecipe, file="taro_qwen3_vl_8b")
    assert (large.data.max_prompt_tokens, large.rollout.sampling.max_tokens, large.rollout.sampling.temperature) == (7680, 512, 1.0)
    assert (time_r1.video.total_pixels, time_r1.video.min_pixels) == (3584 * 784, 16 * 784)


def test_published_numbers_of_time_r1s_data_and_fine_tuning():
    """../shared/specs/taro.md section 8: Gaussian draw, filter, and what fine-tuning changes."""
    post = load_recipe(GrpoRecipe, file="time_r1")
    assert (post.data.select.mu, post.data.select.sigma, post.data.select.above) == (0.3, 0.2, 0.0)
    rule = post.data.filter
    assert (rule.every, rule.above, rule.up_to, rule.k, rule.order) == (1, 0.0, 0.7, 2500, "shuffled")
    assert [r.config.shape for r in post.reward if r.name == "iou"] == ["boundary"]
    for name, source in (("charades", "charades_sta"), ("activitynet", "activitynet")):
        tuned = load_recipe(GrpoRecipe, file=f"time_r1_{name}_ft")
        assert (tuned.algo.kl.coef, tuned.train.epochs, tuned.data.filter.every) == (0.0, 2, 0)
        assert [(r.name, r.config.form) for r in tuned.reward] == [("format", "time_r1"), ("iou", "time_r1")]
        assert [r.config.shape for r in tuned.reward if r.name == "iou"] == ["iou"]
        assert (tuned.data.source.name, tuned.data.source.config.split) == (source, "train")
        assert (tuned.optim, tuned.rollout, tuned.video, tuned.zero) == (post.optim, post.rollout, post.video, post.zero)
