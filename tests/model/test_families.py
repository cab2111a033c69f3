"""Families: forward passes equal the Hugging Face model's, positions and placeholders are right for awkward clips."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer, CLIPConfig

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.data.video.types import Clip
from vtgrl.model.families import family_for
from vtgrl.model.families._qwen_vl import VIDEO_KWARGS
from vtgrl.model.families.base import Family
from vtgrl.model.media import make_medium
from vtgrl.model.types import Medium

VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


class Kit:
    """One tiny vision model and its parts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processor: Any = AutoProcessor.from_pretrained(folder)
        self.config: Any = AutoConfig.from_pretrained(folder)
        self.family: Family = family_for(self.config)
        self.unit = self.family.unit(self.config)

    def model(self) -> Any:
        return AutoModelForImageTextToText.from_pretrained(self.folder, dtype=torch.float32).eval()

    def clip(self, frames: int, *, seconds: float = 0.5, seed: int = 0) -> Clip:
        pixels = np.random.default_rng(seed).integers(0, 255, (frames, 2 * self.unit, 3 * self.unit, 3), dtype=np.uint8)
        return Clip(f"{frames}-{seed}", pixels, tuple(i * seconds for i in range(frames)), 1 / seconds, frames * seconds, 30.0)

    def medium(self, clip: Clip) -> Medium:
        return make_medium(clip, processor=self.processor, family=self.family)

    def text(self, clips: int = 1) -> str:
        parts = [{"type": "video"}] * clips + [{"type": "text", "text": "When is the red square visible?"}]
        return self.processor.apply_chat_template([{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True)

    def hugging_face(self, clips: list[Clip], text: str) -> Any:
        """The processor's full call on the clips as they are, odd ones too."""
        metadata = [{**self.medium(c).metadata, "frames_indices": list(c.times)} for c in clips]
        frames = [c.frames_THWC for c in clips]
        return self.processor(text=[text], videos=frames, video_metadata=metadata, return_tensors="pt", **VIDEO_KWARGS)

    def placeholders(self, ids: list[int]) -> list[int]:
        return [i for i, token in enumerate(ids) if token == self.family.vision_token_id(self.config)]


@pytest.fixture(scope="module", params=VISION)
def kit(request: pytest.FixtureRequest, tiny_dir: Callable[[str], Path]) -> Kit:
    return Kit(tiny_dir(request.param))


def our_logits(kit: Kit, model: Any, ids: list[int], media: tuple[Medium, ...]) -> torch.Tensor:
    """Logits [T, V] by the family's parts."""
    family = kit.family
    index = torch.tensor(kit.placeholders(ids))
    vision = family.encode_vision(model, torch.cat([m.pixel_values for m in media]), torch.tensor([m.grid_thw for m in media]))
    embeds = family.embed(model)(torch.tensor([ids])).clone()
    embeds[0, index] = vision.embeds_VD
    positions_3P, _ = family.positions(kit.config, tuple(ids), media)
    return family.head(model)(family.text_forward(model, embeds, positions_3P[:, None], vision, index))[0]


@torch.no_grad()
@pytest.mark.parametrize("frames", [(6,), (4, 6)])
def test_logits_are_the_models_own(kit: Kit, frames: tuple[int, ...]) -> None:
    model = kit.model()
    media = tuple(kit.medium(kit.clip(n, seed=n)) for n in frames)
    ids = kit.family.expand(kit.processor, kit.text(len(frames)), media)
    positions_3P, _ = kit.family.positions(kit.config, tuple(ids), media)
    whole = model(
        input_ids=torch.tensor([ids]),
        pixel_values_videos=torch.cat([m.pixel_values for m in media]),
        video_grid_thw=torch.tensor([m.grid_thw for m in media]),
        position_ids=positions_3P[:, None],
    ).logits[0]
    torch.testing.assert_close(our_logits(kit, model, ids, media), whole, atol=1e-6, rtol=0)


@torch.no_grad()
def test_text_model_logits_are_the_models_own(tiny_dir: Callable[[str], Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_dir("text"), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_dir("text"))
    family = family_for(model.config)
    ids = family.expand(tokenizer, "When is the red square visible?", ())
    positions_3P, free = family.positions(model.config, tuple(ids), ())
    assert positions_3P.tolist() == [list(range(len(ids)))] * 3
    assert free == len(ids)
    hidden = family.text_forward(model, family.embed(model)(torch.tensor([ids])), positions_3P[:, None], None, None)
    torch.testing.assert_close(family.head(model)(hidden), model(torch.tensor([ids])).logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
def test_any_number_of_frames_reads_as_hugging_face_reads_it(kit: Kit, frames: int) -> None:
    """Public fault 22."""
    clip = kit.clip(frames)
    medium = kit.medium(clip)
    ids = kit.family.expand(kit.processor, kit.text(), (medium,))
    theirs = kit.hugging_face([clip], kit.text())
    assert ids == theirs["input_ids"][0].tolist()
    assert torch.equal(medium.pixel_values, theirs["pixel_values_videos"])
    assert medium.grid_thw == tuple(theirs["video_grid_thw"][0].tolist()) == (-(-frames // 2), 4, 6)
    assert len(medium.frames_THWC) == 2 * medium.grid_thw[0], "the engine gets an even number of frames"
    if "second_per_grid_ts" in theirs and frames % 2 == 0:
        assert medium.seconds_per_grid == theirs["second_per_grid_ts"][0]


@torch.no_grad()
@pytest.mark.parametrize("frames", [(1,), (3,), (5, 5), (2, 5, 1)])
def test_placeholders_features_and_grid_agree(kit: Kit, frames: tuple[int, ...]) -> None:
    """Public fault 22: two clips of five frames are padded each on its own."""
    media = tuple(kit.medium(kit.clip(n, seed=i)) for i, n in enumerate(frames))
    ids = kit.family.expand(kit.processor, kit.text(len(frames)), media)
    model = kit.model()
    together = kit.family.encode_vision(model, torch.cat([m.pixel_values for m in media]), torch.tensor([m.grid_thw for m in media]))
    patches = sum(t * h * w for t, h, w in (m.grid_thw for m in media))
    assert len(kit.placeholders(ids)) == len(together.embeds_VD) == patches // 4
    alone = [kit.family.encode_vision(model, m.pixel_values, torch.tensor([m.grid_thw])) for m in media]
    torch.testing.assert_close(together.embeds_VD, torch.cat([v.embeds_VD for v in alone]), atol=1e-6, rtol=0)
    for layer, parts in zip(together.deepstack, zip(*(v.deepstack for v in alone), strict=True), strict=True):
        torch.testing.assert_close(layer, torch.cat(parts), atol=1e-6, rtol=0)


@pytest.mark.parametrize("seconds", [0.25, 0.5, 0.75, 1.5])
def test_time_moves_on_at_fractional_seconds(kit: Kit, seconds: float) -> None:
    """Public fault 18: seconds per slice cut to an integer gave every slice the same position. Qwen2.5-VL has
    two positions a second, so its slices are apart from half a second on; below, it is every other slice."""
    medium = kit.medium(kit.clip(8, seconds=seconds / 2))
    ids = kit.family.expand(kit.processor, kit.text(), (medium,))
    positions_3P, free = kit.family.positions(kit.config, tuple(ids), (medium,))
    starts = kit.placeholders(ids)[:: len(kit.placeholders(ids)) // 4]
    times = positions_3P[0, starts].tolist()
    if kit.config.model_type == "qwen2_5_vl":
        assert [t - times[0] for t in times] == [int(k * seconds * 2) for k in range(4)]
    if kit.config.model_type == "qwen2_vl":
        assert [t - times[0] for t in times] == [0, 1, 2, 3]
    assert times[-1] > times[0]
    assert free == int(positions_3P.max()) + 1


def test_frame_rate_reaches_the_model(kit: Kit) -> None:
    """Public fault 19: the same 8 frames, tagged 1 and 30 frames a second. (Qwen2-VL has no place for it.)"""
    slow, fast = (kit.medium(kit.clip(8, seconds=s)) for s in (1.0, 1 / 30))
    ids = [kit.family.expand(kit.processor, kit.text(), (m,)) for m in (slow, fast)]
    positions = [kit.family.positions(kit.config, tuple(i), (m,))[0] for i, m in zip(ids, (slow, fast), strict=True)]
    same = ids[0] == ids[1] and torch.equal(*positions)
    assert same == (kit.config.model_type == "qwen2_vl")


def test_text_continues_after_the_largest_position(kit: Kit) -> None:
    """transformers 5.19 continues at start + max(h, w) and forgets a long clip's time axis."""
    medium = kit.medium(kit.clip(40))
    ids = kit.family.expand(kit.processor, kit.text(), (medium,))
    positions_3P, free = kit.family.positions(kit.config, tuple(ids), (medium,))
    last = kit.placeholders(ids)[-1]
    after = positions_3P[:, last + 1 :]
    assert int(after[0, 0]) == int(positions_3P[:, : last + 1].max()) + 1
    assert after.tolist() == [list(range(int(after[0, 0]), free))] * 3


def test_timestamps_are_the_real_ones(tiny_dir: Callable[[str], Path]) -> None:
    kit = Kit(tiny_dir("qwen3_vl"))
    clip = kit.clip(6)
    late = Clip("late", clip.frames_THWC, (0.0, 0.5, 1.7, 1.9, 7.0, 9.2), 0.5, 10.0, 30.0)
    text = kit.processor.tokenizer.decode(kit.family.expand(kit.processor, kit.text(), (kit.medium(late),)))
    assert [text.count(f"<{t} seconds>") for t in ("0.2", "1.8", "8.1")] == [1, 1, 1]


@torch.no_grad()
def test_slices_do_not_see_each_other(kit: Kit) -> None:
    """Permuting temporal slices permutes their embeddings, exactly: what probes rely on."""
    model, medium = kit.model(), kit.medium(kit.clip(8))
    t, h, w = medium.grid_thw
    order = torch.tensor([2, 0, 3, 1])
    shuffled = medium.pixel_values.view(t, h * w, -1)[order].flatten(0, 1)
    grid = torch.tensor([medium.grid_thw])
    plain, moved = (kit.family.encode_vision(model, pixels, grid) for pixels in (medium.pixel_values, shuffled))
    for a, b in zip((plain.embeds_VD, *plain.deepstack), (moved.embeds_VD, *moved.deepstack), strict=True):
        torch.testing.assert_close(a.view(t, h * w // 4, -1)[order].flatten(0, 1), b, atol=1e-6, rtol=0)


def test_parameter_groups_and_names(kit: Kit) -> None:
    model = kit.model()
    groups = kit.family.freeze_groups(model)
    names = [name for name, _ in model.named_parameters()]
    assert sorted(n for group in groups.values() for n in group) == sorted(names)
    assert all(groups.values())
    assert {kit.family.checkpoint_name(n) for n in names} == set(load_file(kit.folder / "model.safetensors"))
    name = next(n for n in names if n.endswith("layers.0.self_attn.q_proj.weight"))
    assert kit.family.checkpoint_name(name.replace(".weight", ".base_layer.weight")) == kit.family.checkpoint_name(name)


@torch.no_grad()
def test_dummy_vision_runs(kit: Kit) -> None:
    made = kit.family.dummy_vision(kit.config)
    assert made is not None
    out = kit.family.encode_vision(kit.model(), *made)
    assert out.embeds_VD.shape == (1, 128)
    assert len(out.deepstack) == (2 if kit.family.name == "qwen3_vl" else 0)


def test_frames_of_another_size_are_refused(kit: Kit) -> None:
    clip = kit.clip(2)
    cropped = Clip("c", clip.frames_THWC[:, :-3], clip.times, clip.fps, clip.duration, clip.source_fps)
    with pytest.raises(DataError, match=f"multiples of {kit.unit}"):
        kit.medium(cropped)


def test_a_lost_placeholder_is_refused(kit: Kit) -> None:
    with pytest.raises(DataError, match="1 video placeholders for 2 clips"):
        kit.family.expand(kit.processor, kit.text(), (kit.medium(kit.clip(2)),) * 2)


def test_text_groups_when_tied(tmp_path: Path) -> None:
    from vtgrl.model.tiny import build_tiny

    model = AutoModelForCausalLM.from_pretrained(build_tiny(tmp_path / "m", family="text", tie=True))
    groups = family_for(model.config).freeze_groups(model)
    assert groups["embed"] == groups["lm_head"] == ["model.embed_tokens.weight"]


def test_unknown_vision_model() -> None:
    with pytest.raises(ConfigError, match="clip"):
        family_for(CLIPConfig())


def test_text_model_cannot_watch(tiny_dir: Callable[[str], Path]) -> None:
    family = family_for(AutoConfig.from_pretrained(tiny_dir("text")))
    with pytest.raises(ConfigError, match="text-only"):
        family.clip_inputs(None, np.zeros((2, 28, 28, 3), np.uint8), {})
    assert family.unit(None) == 0
    assert family.dummy_vision(None) is None
