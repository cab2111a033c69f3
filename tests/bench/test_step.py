"""The GRPO step against TRL's: both sides train on the same thing, and end in the same place."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vtgrl.bench.measure.kit import Kit, TinyConfig, tiny_kit
from vtgrl.bench.run import run_bench
from vtgrl.bench.step_parts.same_rollouts import FAMILY, StepSize, same_rollouts
from vtgrl.core.errors import ConfigError, EnvironmentMissing

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="TRL is not installed: make bench has it in .venv/bench")

SMALL = ("prompts=2", "prompt=96", "answers=4", "answer=8", "images=2", "side=3", "layers=2", "micro_batch=4", "repeats=1")


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    with tiny_kit(FAMILY, TinyConfig(layers=1)) as made:
        yield made


@pytest.mark.parametrize("images", [0, 1, 3])
def test_prompts_have_the_size_that_was_asked_for(kit: Kit, images: int) -> None:
    found = same_rollouts(kit, StepSize(prompts=3, prompt=70, answers=2, answer=5, images=images, side=3))
    assert {len(p.ours.input_ids) for p in found.prompts} == {70}
    assert [len(p.images) for p in found.prompts] == [images] * 3
    assert [[len(a) for a in group] for group in found.answers] == [[5, 5]] * 3
    assert len(set(found.rewards)) == 6
    assert len({p.ours.input_ids for p in found.prompts}) == 3


def test_images_and_clips_are_the_same_to_the_model(kit: Kit) -> None:
    """The processor makes of TRL's images and text what our side trains on: ids, patches, positions."""
    (prompt,) = same_rollouts(kit, StepSize(prompts=1, prompt=80, answers=2, answer=1, images=2, side=4)).prompts
    parts = [*[{"type": "image"}] * 2, {"type": "text", "text": prompt.chat_text}]
    chat = kit.processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=False)
    images = [Image.fromarray(pixels) for pixels in prompt.images]
    made = kit.processor(images=[images], text=[chat], return_tensors="pt")
    assert tuple(made["input_ids"][0].tolist()) == prompt.peer_ids
    ours = torch.cat([m.pixel_values for m in prompt.ours.media])
    assert torch.allclose(made["pixel_values"], ours, atol=1e-6)
    positions_31P, _ = kit.hf().model.get_rope_index(
        made["input_ids"], made["mm_token_type_ids"], made["image_grid_thw"], attention_mask=made["attention_mask"]
    )
    assert torch.equal(positions_31P[:, 0], prompt.ours.positions_3P)
    assert not np.array_equal(prompt.images[0], prompt.images[1])


def test_without_trl_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(EnvironmentMissing, match="make bench"):
        run_bench("step", overrides=SMALL)


def test_micro_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="micro_batch=3 does not divide 8 answers"):
        run_bench("step", overrides=[*SMALL, "micro_batch=3"])


def run(*overrides: str) -> dict[str, Any]:
    """The command in a process of its own: TRL and DeepSpeed each keep global state."""
    command = [sys.executable, "-m", "vtgrl", "bench", "step", "--json", *SMALL, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@needs_trl
@pytest.mark.slow
def test_less_work_same_gradient_same_weights() -> None:
    result = run()
    assert result["exactness"] <= 1e-5
    for case in (result["details"]["text"], result["details"]["images"]):
        assert case["tokens"] == {"ours": 2 * (96 + 4 * 8), "trl": 2 * 4 * (96 + 8)}
        assert case["ratio"]["flops"] > 2
        assert case["difference"]["loss"] <= 1e-6
        assert case["difference"]["weights_in_steps"] <= 0.5  # of one AdamW step, which is as good as a sign


@needs_trl
@pytest.mark.slow
def test_two_passes_over_the_answers_score_first_on_both_sides() -> None:
    once, twice = run("images=0"), run("images=0", "epochs=2")
    assert twice["exactness"] <= 1e-5
    for side in ("ours", "trl"):
        ratio = twice["details"]["text"]["flops"][side] / once["details"]["text"]["flops"][side]
        assert 2.2 < ratio < 2.5  # two updates and a scoring pass, a third of one
