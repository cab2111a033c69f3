"""A question, a real clip and a tiny model; settings from a run's folder; what the page shows for faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.demo.answer import Answer, Answerer, open_answerer
from vtgrl.demo.example import Example, make_example
from vtgrl.demo.page import respond
from vtgrl.demo.reply import read_reply
from vtgrl.demo.settings import load_settings

EXAMPLE = Example(Path("/tmp/x/vtgrl_example.mp4"), "When is it?", (1.0, 3.0))


class Says:
    """A model that always says the same."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[Path, str]] = []

    def ask(self, clip: Path, query: str) -> Answer:
        self.asked.append((clip, query))
        return Answer(read_reply(self.text, duration=8.0, query=query), tokens=7, seconds=0.25)


@pytest.fixture(scope="module")
def tiny(tiny_dir):
    answerer = open_answerer(
        str(tiny_dir("qwen2_5_vl")), load_settings("", prompt="taro", keys=["sampling.max_tokens=12", "video.max_pixels=3136"]), engine="hf"
    )
    yield answerer
    answerer.close()


def test_a_tiny_model_answers_about_a_real_clip(tiny: Answerer, world_dir):
    answer = tiny.ask(world_dir / "videos" / "000000.mp4", "When is the red square visible?")
    assert answer.reply.duration == 8.0
    assert 1 <= answer.tokens <= 12
    assert answer.reply.cut == (answer.tokens == 12)
    assert answer.seconds > 0.0
    assert tiny.ask(world_dir / "videos" / "000000.mp4", "When is the red square visible?").reply == answer.reply


def test_an_unreadable_clip_is_one_line_without_its_folder(tiny: Answerer, tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    with pytest.raises(DataError) as caught:
        tiny.ask(broken, "When?")
    assert str(caught.value).startswith("broken.mp4: not a readable video")
    assert str(tmp_path) not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_model_is_refused(tiny_dir):
    with pytest.raises(ConfigError, match="text-only"):
        open_answerer(str(tiny_dir("text")), load_settings(""), engine="hf")


def test_settings_come_from_the_run_then_from_the_user(tmp_path):
    (tmp_path / "model").mkdir()
    model = str(tmp_path / "model")
    (tmp_path / "resolved.yaml").write_text(
        "data: {prompt: {name: taro, instruction: false}}\nvideo: {max_frames: 16, cache_dir: /gone, workers: 4, added_later: 1}\n"
        "validation: {temperature: 0.0, max_tokens: 99}\n"
    )
    found = load_settings(model)
    assert (found.prompt.name, found.prompt.config.instruction) == ("taro", False)
    assert (found.video.max_frames, found.video.cache_dir, found.video.workers, found.sampling.max_tokens) == (16, "", 0, 99)
    told = load_settings(model, prompt="{name: time_r1, text_first: true}", keys=["video.max_frames=8"])
    assert (told.prompt.name, told.prompt.config.text_first, told.video.max_frames) == ("time_r1", True, 8)
    assert load_settings(str(tmp_path / "elsewhere" / "model")).prompt.name == "time_r1"


def test_a_wrong_key_is_one_line_with_a_proposal():
    with pytest.raises(ConfigError, match=r"unknown key 'max_frame' in video; did you mean 'max_frames'\?"):
        load_settings("", keys=["video.max_frame=8"])


def test_the_example_is_a_clip_with_a_true_answer(tmp_path):
    example = make_example(tmp_path / "a")
    assert example.clip.is_file()
    assert 0.0 <= example.window[0] < example.window[1] <= 8.0
    assert example.truth_of(tmp_path / "copy" / example.clip.name, f" {example.query} ") == example.window
    assert example.truth_of(example.clip, "another question") is None
    assert example.truth_of(tmp_path / "mine.mp4", example.query) is None


@pytest.mark.parametrize(("max_pixels", "side"), [(0, 224), (3136, 56), (100 * 101, 100), (10**6, 224)])
def test_the_example_is_no_larger_than_the_models_frames(tmp_path, max_pixels, side):
    from vtgrl.data.video.probe import probe

    info = probe(make_example(tmp_path, max_pixels=max_pixels).clip)
    assert (info.height, info.width) == (side, side)


def test_the_truth_is_drawn_for_the_example_alone():
    says = Says("<think>hm</think><answer>2.0s to 4.0s</answer>")
    bars, answer, thoughts = respond(says, EXAMPLE, "/copy/vtgrl_example.mp4", " When is it? ")
    assert "vt-bar vt-answer" in bars
    assert "vt-bar vt-truth" in bars
    assert "7 tokens, 0.2 s" in answer
    assert "hm" in thoughts
    assert says.asked == [(Path("/copy/vtgrl_example.mp4"), "When is it?")]
    assert "vt-truth" not in respond(says, EXAMPLE, "/copy/mine.mp4", "When is it?")[0]


@pytest.mark.parametrize(
    ("clip", "query", "says"), [(None, "When?", "No clip"), ("/a.mp4", " ", "No question"), ("/a.mp4", None, "No question")]
)
def test_what_is_missing_is_said_on_the_page(clip, query, says):
    model = Says("")
    bars, answer, thoughts = respond(model, EXAMPLE, clip, query)
    assert says in bars
    assert (answer, thoughts, model.asked) == ("", "", [])


def test_a_clip_that_cannot_be_read_is_a_line_on_the_page():
    class Refuses:
        def ask(self, clip: Path, query: str) -> Answer:
            raise DataError(f"{clip.name}: not a <video>")

    bars, *_ = respond(Refuses(), EXAMPLE, "/a/b.mp4", "When?")
    assert bars == '<p class="vt-problem" role="alert">b.mp4: not a &lt;video&gt;</p>'
