"""Tiny checkpoints: plain loading, determinism, compact tokenizer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from vtgrl.core.errors import ConfigError
from vtgrl.model.checks import PIXEL_SETTINGS
from vtgrl.model.tiny import MAKERS, build_tiny
from vtgrl.model.tiny_tokenizer import SPECIALS, TAGS, VOCAB_SIZE, make_tokenizer

VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.mark.parametrize("family", MAKERS)
def test_loads_with_auto_classes(tiny_dir: Callable[[str], Path], family: str) -> None:
    auto = AutoModelForCausalLM if family == "text" else AutoModelForImageTextToText
    model, info = auto.from_pretrained(tiny_dir(family), output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.num_parameters() < 1.5e6
    tokenizer = AutoTokenizer.from_pretrained(tiny_dir(family))
    assert len(tokenizer) == VOCAB_SIZE == model.get_input_embeddings().weight.shape[0]
    assert model.generation_config.eos_token_id == [tokenizer.eos_token_id, tokenizer.pad_token_id]


@pytest.mark.parametrize("family", VISION)
def test_images_and_videos_have_equal_pixel_statistics(tiny_dir: Callable[[str], Path], family: str) -> None:
    processor = AutoProcessor.from_pretrained(tiny_dir(family))
    for name in PIXEL_SETTINGS:
        assert getattr(processor.image_processor, name) == getattr(processor.video_processor, name)


@pytest.mark.parametrize("family", MAKERS)
def test_weights_depend_on_the_seed_alone(tmp_path: Path, family: str) -> None:
    torch.manual_seed(99)
    state = torch.get_rng_state()
    first = load_file(build_tiny(tmp_path / "a", family=family, seed=3) / "model.safetensors")
    assert torch.equal(state, torch.get_rng_state()), "the caller's random stream is untouched"
    again = load_file(build_tiny(tmp_path / "b", family=family, seed=3) / "model.safetensors")
    other = load_file(build_tiny(tmp_path / "c", family=family, seed=4) / "model.safetensors")
    assert first.keys() == again.keys()
    assert all(torch.equal(first[k], again[k]) for k in first)
    head = "lm_head.weight"
    assert not torch.equal(first[head], other[head])


@pytest.mark.parametrize("family", MAKERS)
def test_tied_head(tmp_path: Path, family: str) -> None:
    folder = build_tiny(tmp_path / "m", family=family, tie=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    auto = AutoModelForCausalLM if family == "text" else AutoModelForImageTextToText
    model = auto.from_pretrained(folder)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_size_arguments(tmp_path: Path) -> None:
    config = json.loads((build_tiny(tmp_path / "m", family="qwen3_vl", hidden=64, layers=2) / "config.json").read_text())
    assert (config["text_config"]["hidden_size"], config["text_config"]["num_hidden_layers"]) == (64, 2)


@pytest.mark.parametrize(
    ("kwargs", "match"), [({"family": "qwen9_vl"}, "qwen2_vl, qwen2_5_vl"), ({"family": "text", "hidden": 100}, "multiple of 32")]
)
def test_wrong_arguments(tmp_path: Path, kwargs: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        build_tiny(tmp_path / "m", **kwargs)


@pytest.mark.parametrize("family", MAKERS)
def test_tokenizer_survives_the_folder(tiny_dir: Callable[[str], Path], family: str) -> None:
    text = "<think>The red square is there.</think>\n<answer>12.50s to 3.25s</answer> éè  \n\n日本 'tis"
    trained, loaded = make_tokenizer(), AutoTokenizer.from_pretrained(tiny_dir(family))
    ids = loaded(text)["input_ids"]
    assert ids == trained(text)["input_ids"]
    assert loaded.decode(ids) == text


def test_world_vocabulary_is_short() -> None:
    tokenizer = make_tokenizer()

    def pieces(text: str) -> list[str]:
        return [tokenizer.decode([i]) for i in tokenizer(text)["input_ids"]]

    assert pieces("When is the magenta triangle visible?") == ["When", " is", " the", " magenta", " triangle", " visible", "?"]
    assert pieces("<answer>12.50s to 3.25s</answer>") == ["<answer>", *"12.50s", " to", " ", *"3.25s", "</answer>"]
    assert tokenizer.convert_tokens_to_ids(list(SPECIALS)) == list(range(len(SPECIALS)))


def test_tags_are_plain_tokens_and_specials_are_not() -> None:
    tokenizer = make_tokenizer()
    text = "".join(TAGS) + "ok<|im_end|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == "".join(TAGS) + "ok"
