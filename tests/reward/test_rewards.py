"""Format and IoU rewards against the published vectors (taro.md 5.4, R1-R4) and against what vtgrl corrects (T9-T12, T21)."""

from __future__ import annotations

import math
import random

import pytest

from vtgrl.core.types import Completion, Sample, VideoRef
from vtgrl.reward.format import FormatConfig, format_reward, has_shape
from vtgrl.reward.iou import IouConfig, iou_reward
from vtgrl.reward.official import last_answer, taro_window, time_r1_window
from vtgrl.reward.types import RewardRow

Windows = tuple[tuple[float, float], ...]


def row(
    text: str, *, windows: Windows = ((8.5, 12.4),), duration: float = 30.0, task: str = "vtg", split: str = "train", query: str = "he eats"
) -> RewardRow:
    sample = Sample(id="a", task=task, query=query, video=VideoRef("a.mp4"), windows=windows, split=split)  # type: ignore[arg-type]
    return RewardRow(sample, Completion((1,), (0.0,), text, "stop", 0), "g", duration)


def think(answer: str) -> str:
    return f"<think>It is early.</think>\n<answer>{answer}</answer>"


def f(text: str, **config: object) -> float | None:
    return format_reward([row(text)], config=FormatConfig(**config)).values[0]  # type: ignore[arg-type]


def u(text: str, windows: Windows = ((8.5, 12.4),), duration: float = 30.0, *, split: str = "train", **config: object) -> float | None:
    return iou_reward([row(text, windows=windows, duration=duration, split=split)], config=IouConfig(**config)).values[0]  # type: ignore[arg-type]


MENTIONED = "<think>I put it in <answer> tags.</think><answer>8.50s to 12.40s</answer>"
TARO_VECTORS = [  # answer, truth, format, U, IoU; duration 30
    (think("8.50s to 12.40s"), (8.5, 12.4), 1, 1, 1),
    (think("8.50 to 12.40"), (8.5, 12.4), 1, 0, 0),
    (think("8.50s - 12.40s"), (8.5, 12.4), 1, 0, 0),
    (think("8.50s  to 12.40s"), (8.5, 12.4), 1, 0, 0),
    (think("1:08.50s to 1:12.40s"), (68.5, 72.4), 1, 0, 0),
    (think("12.40s to 8.50s"), (8.5, 12.4), 1, 0, 0),
    (think("5.00s to 100.00s"), (10.0, 20.0), 1, -0.146, 0.105),
    (think("-5.00s to 12.40s"), (0.0, 12.4), 1, 0.497, 0.597),
    (think(".50s to 12.40s"), (0.5, 12.4), 1, 0, 0),
    (think("1.2.50s to 12.40s"), (0.5, 12.4), 1, 0.776, 0.832),
    (think("1e1s to 12.4s"), (1.0, 12.4), 1, 1, 1),
    (think("8.50s to 12.40s and 20.00s to 25.00s"), (8.5, 12.4), 1, 0, 0),
    ("<think></think><answer></answer>", (8.5, 12.4), 1, 0, 0),
    (think("8.50s to 12.40s") + " done", (8.5, 12.4), 0, 1, 1),
    (MENTIONED, (8.5, 12.4), 0, 1, 1),
    (think("85.83s to 85.83s"), (85.83, 85.83), 1, 0, 0),
]


@pytest.mark.parametrize(("text", "truth", "form", "shaped", "plain"), TARO_VECTORS)
def test_taro_vectors(text: str, truth: tuple[float, float], form: float, shaped: float, plain: float) -> None:
    duration = 90.0 if truth[0] > 30 else 30.0
    assert f(text, form="taro") == form
    assert u(text, (truth,), duration, form="taro") == pytest.approx(shaped, abs=5e-4)
    assert u(text, (truth,), duration, form="taro", split="test") == pytest.approx(plain, abs=5e-4)
    assert u(text, (truth,), duration, form="taro", shape="iou") == pytest.approx(plain, abs=5e-4)
    assert u(text, (truth,), duration, form="taro", shape="boundary", split="test") == pytest.approx(shaped, abs=5e-4)


def test_taro_and_time_r1_reject_each_others_answers() -> None:
    ours, theirs = think("8.50s to 12.40s"), think("8.50 to 12.40")
    assert (u(ours, form="taro"), u(theirs, form="taro")) == (1.0, 0.0)
    assert (u(ours, form="time_r1"), u(theirs, form="time_r1")) == (0.0, 1.0)  # R2
    assert u(ours) == u(theirs) == u(think("8.50s - 12.40s")) == 1.0


def test_time_r1_faults_are_reproduced_but_never_crash() -> None:
    assert u(think("5.0 to 5.0"), ((5.0, 5.0),), form="time_r1") == 0.0  # R1: undefined there
    assert f(think("8.50 to 12.40") * 2, form="time_r1") == 1.0  # R3
    assert f(think("8.50 to 12.40") * 2, form="taro") == f(think("8.50 to 12.40") * 2) == 0.0
    far = think("120.0 to 14220.0")
    assert u(far, ((120.0, 14220.0),), 157.8, form="time_r1") == 1.0  # R4
    assert u(far, ((120.0, 14220.0),), 157.8) == 1.0  # ours: both clamped to [120, 157.8]
    assert u(think("120.0 to 157.8"), ((120.0, 14220.0),), 157.8) == 1.0
    assert u(think("8.50 TO 12.40"), form="time_r1") == 1.0


def test_truth_that_leaves_the_clip() -> None:
    """TaRO and ours clip it, Time-R1 does not (R4)."""
    taro, time_r1 = think("20.00s to 30.00s"), think("20.00 to 30.00")
    for truth in ((20.0, 40.0), (20.0, 14220.0)):
        assert u(taro, (truth,), form="taro") == u(taro, (truth,)) == 1.0
        assert u(time_r1, (truth,), form="time_r1", shape="iou") == pytest.approx(10 / (truth[1] - 20))
    assert u(think("0.00s to 10.00s"), ((-10.0, 10.0),), form="taro") == 1.0
    assert u(think("0.00 to 10.00"), ((-10.0, 10.0),), form="time_r1", shape="iou") == 0.5


def test_overshoot_beats_no_overlap_in_ours_only() -> None:
    """T9: TaRO pays less for a window that covers the truth and runs far over than for one that misses it."""
    over, miss = think("5.00s to 100.00s"), think("21.00s to 25.00s")
    assert u(over, ((10.0, 20.0),), form="taro") < u(miss, ((10.0, 20.0),), form="taro") == 0.0
    assert u(over, ((10.0, 20.0),)) == pytest.approx(0.4 * (1 - 5 / 30) * (1 - 10 / 30))


@pytest.mark.parametrize(
    ("text", "truth", "value"),
    [
        (think("12.40s to 8.50s"), (8.5, 12.4), 1.0),  # T12: swapped as in evaluation
        (think(".50s to 12.40s"), (0.5, 12.4), 1.0),  # T11
        (think("1e1s to 12.4s"), (10.0, 12.4), 1.0),
        (think("-5.00s to 12.40s"), (0.0, 12.4), 1.0),
        (think("1.2.50s to 12.40s"), (0.5, 12.4), 0.0),
        (think("1:08.50 to 1:12.40"), (8.5, 12.4), 0.0),
        (think("8.50s to 12.40s"), (8.5, 8.5), 0.0),
        (think("20s to 30s"), (20.0, 45.0), 1.0),  # truth clipped to the clip
        (think("20s to 30s"), (40.0, 45.0), 0.0),  # T21: truth behind the clip
        ("no answer", (8.5, 12.4), 0.0),
        ("<think>8.50s to 12.40s", (8.5, 12.4), 0.0),
    ],
)
def test_vtgrl_form(text: str, truth: tuple[float, float], value: float) -> None:
    assert u(text, (truth,)) == pytest.approx(value)


def test_plain_form_ignores_boundaries_and_clip() -> None:
    assert u(think("10s to 25s"), ((10.0, 40.0),), form="plain") == 0.5
    assert u(think("10s to 25s"), ((10.0, 40.0),)) == pytest.approx(15 / 20 * (1 - 5 / 30))


def test_vtgrl_reward_is_bounded_and_falls_with_the_error() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        duration = rng.uniform(5, 200)
        truth = tuple(sorted((rng.uniform(-5, duration + 20), rng.uniform(-5, duration + 20))))
        a, b = rng.uniform(-20, 2 * duration), rng.uniform(-20, 2 * duration)
        value = u(think(f"{a:.2f} to {b:.2f}"), (truth,), duration)  # type: ignore[arg-type]
        assert value is not None
        assert 0.0 <= value <= 1.0
    values = [u(think(f"{8.5 + d:.1f} to 12.4")) for d in (0, 0.5, 1, 2, 3)]
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]


def test_best_of_several_true_windows() -> None:
    truth = ((10.0, 20.0), (22.0, 28.0))
    for form in ("vtgrl", "plain", "taro"):
        assert u(think("22.00s to 28.00s"), truth, form=form) == 1.0
    assert u(think("10s to 28s"), truth, form="plain") == pytest.approx(10 / 18)


def test_where_the_reward_does_not_apply_or_cannot_be_computed() -> None:
    text = think("8.5 to 12.4")
    rows = [row(text), row(text, task="qa"), row(text, windows=()), row(text, duration=0.0), row(text, duration=math.nan)]
    values = iou_reward(rows, config=IouConfig()).values
    assert values[:3] == (1.0, None, None)
    assert all(v is not None and math.isnan(v) for v in values[3:])


def test_parse_kinds_are_counted() -> None:
    rows = [row(think("8.5 to 12.4")), row(think("12.4 to 8.5")), row(think("no")), row("<think>x"), row("<think>y")]
    metrics = iou_reward(rows, config=IouConfig()).metrics
    assert metrics == {"parse/ok": 1.0, "parse/reversed": 1.0, "parse/none": 1.0, "parse/truncated": 2.0}
    assert iou_reward(rows, config=IouConfig(form="taro")).metrics == {"parse/none": 5.0}


def test_query_numbers_earn_nothing() -> None:
    rows = [row(think("pours 2 to 3 cups"), windows=((2.0, 3.0),), query="pours 2 to 3 cups")]
    assert iou_reward(rows, config=IouConfig()).values == (0.0,)


@pytest.mark.parametrize(
    ("text", "strict", "taro", "time_r1"),
    [
        (think("8.50s to 12.40s"), 1, 1, 1),
        (think("8.50s to 12.40s") + "<|im_end|>\n", 1, 1, 1),
        ("\n" + think("8.50s to 12.40s") + "\n", 1, 1, 1),
        (think("never"), 0, 1, 1),  # T10
        ("<think></think><answer></answer>", 0, 1, 1),
        (think("8.5 to 12.4") + "x", 0, 0, 0),
        ("x" + think("8.5 to 12.4"), 0, 0, 0),
        ("<think>a</think> so <answer>8.5 to 12.4</answer>", 0, 0, 0),
        ("<think>a</think> so </think><answer>8.5 to 12.4</answer>", 0, 0, 1),
        (MENTIONED, 0, 0, 1),
        ("<answer>8.5 to 12.4</answer>", 0, 0, 0),
        ("<think>a</answer>", 0, 0, 0),
        ("<think></think><answer>", 0, 0, 0),
        ("<think>a</think><answer></answer", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_format_forms(text: str, strict: float, taro: float, time_r1: float) -> None:
    assert (f(text), f(text, form="taro"), f(text, form="time_r1")) == (strict, taro, time_r1)


def test_format_without_thinking() -> None:
    assert f("<answer>8.5 to 12.4</answer>", think=False) == 1.0
    assert f("<answer>never</answer>", think=False) == 0.0
    assert f("<answer>never</answer>", think=False, form="time_r1") == 1.0
    assert f("</answer>", think=False, form="time_r1") == 0.0
    assert f(think("8.5 to 12.4"), think=False) == 0.0
    assert f("<answer></think>8.5 to 12.4</answer>", think=False, form="taro") == 0.0


def test_strict_format_of_other_tasks_asks_for_an_answer() -> None:
    rows = [row(think("B"), task="qa"), row(think(" "), task="qa")]
    assert format_reward(rows, config=FormatConfig()).values == (1.0, 0.0)


def test_has_shape_equals_the_published_pattern() -> None:
    import re

    pattern = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
    rng = random.Random(3)
    parts = ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "a"]
    agreed = 0
    for _ in range(20000):
        text = "".join(rng.choice(parts) for _ in range(rng.randint(0, 8))).strip()
        assert has_shape(text) == bool(pattern.fullmatch(text)), text
        agreed += has_shape(text)
    assert agreed > 10


def test_official_readers_match_the_published_patterns() -> None:
    import re

    block = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
    taro, time_r1 = (re.compile(rf"(\d+\.?\d*){s} (?:to|and) (\d+\.?\d*){s}", re.IGNORECASE) for s in ("s", ""))
    rng = random.Random(4)
    parts = ["<answer>", "</answer>", "8", ".", "5", "12.4", "s", " to ", " and ", " ", "-", "S"]
    seen = 0
    for _ in range(20000):
        text = "<answer>" + "".join(rng.choice(parts) for _ in range(rng.randint(2, 12))) + "</answer>"
        answer = block.findall(text)[-1]
        assert last_answer(text) == answer
        for read, pattern in ((taro_window, taro), (time_r1_window, time_r1)):
            found = pattern.findall(answer)
            expected = tuple(map(float, found[-1])) if found else None
            assert read(text) == expected, text
            seen += expected is not None
    assert seen > 100


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["<answer>", "1", "1.", "1s ", "</think> ", "<|a|>", "<think>", "8 to "])
def test_rewards_are_linear_in_the_text(piece: str) -> None:
    text = "<think>" + piece * (200_000 // len(piece)) + "x</think><answer>" + piece * (200_000 // len(piece)) + "x</answer>"
    for form in ("strict", "taro", "time_r1"):
        f(text, form=form)
    for iou_form in ("taro", "time_r1"):
        assert u(text, form=iou_form) == 0.0
