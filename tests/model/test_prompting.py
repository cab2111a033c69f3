"""Prompts on generated clips: ids equal the processor's, times are true, nothing is cut, answers are found by prefix."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.core.jsonl import read_jsonl
from vtgrl.core.registry import Component, NoConfig
from vtgrl.core.schema import VideoConfig
from vtgrl.core.types import Sample, VideoRef
from vtgrl.model.load import load_parts
from vtgrl.model.prompting import PromptBuilder

TinyDir = Callable[[str], Path]
VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TEMPLATES = Path(__file__).parent / "templates.py"


def builder(folder: Path, template: str = "plain", **kwargs: Any) -> PromptBuilder:
    parts = load_parts(folder)
    settings: dict[str, Any] = {"video": VideoConfig(), "max_prompt_tokens": 512, "eos_ids": tuple(parts.eos_ids)} | kwargs
    component = Component("prompt", f"{TEMPLATES}:{template}", NoConfig())
    made = PromptBuilder(processor=parts.processor, family=parts.family, config=parts.config, template=component, **settings)
    _made.append(made)
    return made


_made: list[PromptBuilder] = []


@pytest.fixture(autouse=True)
def _stop_decoders() -> Iterator[None]:
    """Decoding processes of this test's builders end with it."""
    yield
    while _made:
        _made.pop().close()


@pytest.fixture(scope="module")
def samples(world_dir: Path) -> list[Sample]:
    rows = [row for _, row in read_jsonl(world_dir / "world.jsonl")]
    return [
        Sample(
            id=row["id"],
            task="vtg",
            query=row["query"],
            video=VideoRef(str(world_dir / row["video"]["path"]), duration=row["video"]["duration"]),
            windows=tuple(tuple(w) for w in row["windows"]),
        )
        for row in rows[:4]
    ]


@pytest.mark.parametrize("family", VISION)
def test_prompt_is_what_the_processor_makes(tiny_dir: TinyDir, samples: list[Sample], family: str) -> None:
    made = builder(tiny_dir(family))
    prompt = made.build(samples[0])
    (medium,) = prompt.media
    assert prompt.text.count("<|video_pad|>") == 1
    theirs = made.processor(
        text=[prompt.text], videos=[medium.frames_THWC], video_metadata=[dict(medium.metadata)], do_sample_frames=False, return_tensors="pt"
    )
    assert list(prompt.input_ids) == theirs["input_ids"][0].tolist()
    assert torch.equal(medium.pixel_values, theirs["pixel_values_videos"])
    assert len(prompt.vision_index) == medium.pixel_values.shape[0] // 4
    assert {prompt.input_ids[i] for i in prompt.vision_index} == {made.config.video_token_id}
    assert prompt.positions_3P.shape == (3, len(prompt.input_ids))
    assert prompt.next_position == int(prompt.positions_3P.max()) + 1
    assert prompt.duration == samples[0].video.duration
    assert f"The clip lasts {prompt.duration:.1f}s." in prompt.text


@pytest.mark.parametrize("family", VISION)
def test_answer_is_found_by_prefix(tiny_dir: TinyDir, samples: list[Sample], family: str) -> None:
    """Public fault 53: a plain Qwen-style template has no assistant markers."""
    made = builder(tiny_dir(family))
    start, end = samples[0].windows[0]
    target = f"<answer>{start:.2f}s to {end:.2f}s</answer>"
    ids = made.target_ids(samples[0], made.build(samples[0]))
    assert made.tokenizer.decode(ids) == target + "<|im_end|>"
    assert made.decode(ids) == target
    assert ids[-1] in made.eos_ids
    assert not set(ids[:-1]) & made.eos_ids


def test_metadata_tells_the_true_times(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    made = builder(tiny_dir("qwen2_5_vl"))
    cut = replace(samples[0], video=replace(samples[0].video, start=1.0, end=6.3, duration=None))
    (medium,) = made.build(cut).media
    times = [i / medium.metadata["fps"] for i in medium.metadata["frames_indices"]]
    assert times[0] < 0.2
    assert times == sorted(set(times))
    assert times[-1] < 5.3 == pytest.approx(medium.metadata["duration"])
    true_step = 2 * (times[-1] - times[0]) / (len(times) - 1)
    assert medium.seconds_per_grid == pytest.approx(true_step, rel=0.004)


def test_a_clip_is_decoded_once_for_all_its_questions(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    made = builder(tiny_dir("qwen2_5_vl"))
    first, second = made.build(samples[0]), made.build(replace(samples[0], id="other", query="When is the star visible?"))
    assert first.media[0] is second.media[0]
    assert made.media.decoded == 1


def test_media_memory_is_bounded(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    one = builder(tiny_dir("qwen2_5_vl"))
    one.build(samples[0])
    made = builder(tiny_dir("qwen2_5_vl"), cache_bytes=int(2.5 * one.media.bytes))
    for sample in (*samples[:3], samples[2], samples[1], samples[0]):
        made.build(sample)
        assert made.media.bytes <= 2.5 * one.media.bytes
    assert made.media.decoded == 4, "the two last used clips stay"


def test_a_changed_file_is_read_again(tiny_dir: TinyDir, samples: list[Sample], tmp_path: Path) -> None:
    made = builder(tiny_dir("qwen2_5_vl"))
    file = tmp_path / "clip.mp4"
    sample = replace(samples[0], video=VideoRef(str(file)))
    shutil.copy(samples[0].video.path, file)
    before = made.build(sample).media[0]
    shutil.copy(samples[1].video.path, file)
    after = made.build(sample).media[0]
    assert before.id != after.id
    assert not torch.equal(before.pixel_values, after.pixel_values)


def test_long_prompts_are_refused_never_cut(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    """Public fault 52."""
    length = len(builder(tiny_dir("qwen2_5_vl")).build(samples[0]).input_ids)
    assert len(builder(tiny_dir("qwen2_5_vl"), max_prompt_tokens=length).build(samples[0]).input_ids) == length
    made = builder(tiny_dir("qwen2_5_vl"), max_prompt_tokens=length - 1)
    with pytest.raises(DataError, match=rf"row {samples[0].id}: the prompt has {length} tokens \(32 of video\), more than .*={length - 1}"):
        made.build(samples[0])


@pytest.mark.parametrize("token", ["<|video_pad|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>"])
def test_special_tokens_in_a_row_are_refused(tiny_dir: TinyDir, samples: list[Sample], token: str) -> None:
    made = builder(tiny_dir("qwen2_5_vl"))
    with pytest.raises(DataError, match=rf"row {samples[0].id}: the prompt contains the special token"):
        made.build(replace(samples[0], query=f"When {token} is it?"))
    with pytest.raises(DataError, match="the answer contains the special token"):
        made.target_ids(replace(samples[0], answer=f"a{token}b"), made.build(samples[0]))


@pytest.mark.parametrize(("template", "shown"), [("blind", 0), ("twice", 2)])
def test_template_shows_the_clip_once(tiny_dir: TinyDir, samples: list[Sample], template: str, shown: int) -> None:
    with pytest.raises(DataError, match=f"shows {shown} videos, the row has 1"):
        builder(tiny_dir("qwen2_5_vl"), template).build(samples[0])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "text"])
def test_rows_without_video(tiny_dir: TinyDir, family: str) -> None:
    made = builder(tiny_dir(family))
    sample = Sample(id="t", task="text", query="What is red?", answer="A colour.")
    prompt = made.build(sample)
    assert prompt.media == ()
    assert prompt.duration == 0.0
    assert prompt.positions_3P.tolist() == [list(range(len(prompt.input_ids)))] * 3
    assert made.decode(made.target_ids(sample, prompt)) == "A colour."


def test_text_model_refuses_video(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    with pytest.raises(ConfigError, match=f"row {samples[0].id} has a video, but this is a text-only model"):
        builder(tiny_dir("text")).build(samples[0])


def test_row_without_answer(tiny_dir: TinyDir, samples: list[Sample]) -> None:
    made = builder(tiny_dir("qwen2_5_vl"))
    bare = replace(samples[0], windows=())
    with pytest.raises(DataError, match="no answer to teach"):
        made.target_ids(bare, made.build(bare))


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASSISTANT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.mark.parametrize(("template", "match"), [
    (CHATML + ASSISTANT.replace("\n", "\n<think>"), "does not begin with the prompt's ids"),
    (CHATML.replace("m.content", "m.content|upper") + ASSISTANT, "changes the answer"),
    (CHATML.replace("<|im_end|>", "") + ASSISTANT, "no stop token"),
    ("{{ raise_exception('only one turn') }}", "refuses it: only one turn"),
])  # fmt: skip
def test_chat_templates_that_cannot_be_taught(tiny_dir: TinyDir, template: str, match: str) -> None:
    made = builder(tiny_dir("text"))
    made.tokenizer.chat_template = template
    sample = Sample(id="t", task="text", query="What is red?", answer="A colour.")
    with pytest.raises(DataError, match=f"row t: .*{match}"):
        made.target_ids(sample, made.build(sample))


def test_model_without_chat_template(tiny_dir: TinyDir, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_dir("qwen2_5_vl"), tmp_path / "m"))
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        builder(folder)


def test_all_stop_ids(tiny_dir: TinyDir) -> None:
    assert builder(tiny_dir("qwen2_5_vl")).eos_ids == {0, 2}
    assert builder(tiny_dir("qwen2_5_vl"), eos_ids=()).eos_ids == {2}


def test_unreadable_clip_is_named(tiny_dir: TinyDir, samples: list[Sample], tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("not a video")
    made = builder(tiny_dir("qwen2_5_vl"))
    with pytest.raises(DataError, match=r"bad\.mp4"):
        made.build(replace(samples[0], video=VideoRef(str(tmp_path / "bad.mp4"))))
