"""Each named parser against by-hand expectations, and against what the projects' own functions gave (golden files)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.eval.kit import sample
from vtgrl.core.registry import get, names
from vtgrl.eval.score import Output, make_scorer, score
from vtgrl.eval.summary import failures, means

S_TO_S = "<think>ok</think>\n<answer>\n8.50s to 12.40s\n</answer>"
PLAIN = "<answer>8.50 to 12.40</answer>"
REVERSED = "<answer>12.40 to 8.50</answer>"
TWO = "<answer>1.00 to 2.00</answer><answer>8.50 to 12.40</answer>"
TRAILING = "<answer>8.50 to 12.40</answer> Video length is 30 seconds."
THINKING = "<think>maybe 1.00 to 5.00</think>\n<answer>\n8.50s to 12.40s\n</answer>"
CLOCK = "00:08 - 00:12"
SENTENCE = "The event starts at 8.5 seconds and ends at 12.4 seconds."
CHINESE = "该事件发生在第8.5秒到第12.4秒之间。"

TABLE = [
    ("taro", S_TO_S, [8.5, 12.4]),
    ("taro", REVERSED, [8.5, 12.4]),
    ("taro", TRAILING, [12.4, 30.0]),
    ("taro", "<answer>-8.50s to 12.40s</answer>", [8.5, 12.4]),
    ("taro", "<answer>8.50s</answer>", None),
    ("taro", CHINESE, [8.5, 12.4]),
    ("taro_reward", S_TO_S, [8.5, 12.4]),
    ("taro_reward", PLAIN, None),
    ("taro_reward", "<answer>8.50S AND 12.40s</answer>", [8.5, 12.4]),
    ("taro_reward", "<answer>8.50s  to 12.40s</answer>", None),
    ("taro_reward", "<answer>12.40s to 8.50s</answer>", [12.4, 8.5]),
    ("taro_reward", "<answer>1s to 2s</answer><answer>none</answer>", None),
    ("time_r1", S_TO_S, None),
    ("time_r1", THINKING, [1.0, 5.0]),
    ("time_r1", TWO, [8.5, 12.4]),
    ("time_r1", REVERSED, [12.4, 8.5]),
    ("time_r1", "<answer>8.50 TO 12.40</answer>", None),
    ("time_r1", "<answer>\n23.50 to 30.00\n</answer><|im_end|>", [23.5, 30.0]),
    ("time_r1_difficulty", S_TO_S, [8.5, 12.4]),
    ("time_r1_difficulty", CLOCK, [0.0, 8.0]),
    ("time_r1_reward", "<answer>8.50 TO 12.40</answer>", [8.5, 12.4]),
    ("time_r1_reward", "from 8.5 to 12.4 seconds", None),
    ("videochat_r1", PLAIN, [8.5, 12.4]),
    ("videochat_r1", S_TO_S, None),
    ("lmms", S_TO_S, [8.5, 12.4]),
    ("lmms", CLOCK, [8.0, 12.0]),
    ("lmms", "<answer>12.40s to 8.50s</answer>", [8.5, 12.4]),
    ("lmms", "8.5 seconds to 12.4 seconds", None),
    (
        "lmms",
        "<answer>0.00s to 1.00s</answer>\n<answer>1.13s to 4.02s</answer>",
        [0.0, 1.0],
    ),  # a number ends before the s: 1.13s is read as 1
    ("lmms", SENTENCE, None),
    ("lmms", "The start is 3.5\nThe end is 9.5", [3.5, 9.5]),
    ("lmms_old", CLOCK, None),
    ("lmms_old", "The event happens in 00:08 - 00:12.", [0.0, 8.0]),
    ("lmms_old", "starts at 00:00:08\nends at 00:00:12", [0.0, 0.0]),
    ("lmms_old", 'The event "takes 2 to 3 cups" happens from 8.5 to 12.4 seconds', [2.0, 3.0]),
    ("timelens", S_TO_S, [8.0, 12.0]),
    ("timelens", "00:08.5 - 00:12.4", [8.5, 12.4]),
    ("timelens", "1:00:08 - 1:00:12", [3608.0, 3612.0]),
    ("timelens", REVERSED, [12.4, 8.5]),
    ("timelens", '{"start_time": 8.5, "end_time": 12.4}', [8.5, 12.4]),
    ("lmms_timelens", "8.5~12.4", [8.5, 12.4]),
    ("timelens_reward", THINKING, [8.0, 12.0]),
    ("timelens_reward", "from 8.5 to 12.4", [8.5, 12.4]),
    ("ewb", TWO, [8.5, 12.4]),
    ("ewb", "8.5 \u2013 12.4", [8.5, 12.4]),
    ("ewb", REVERSED, [8.5, 12.4]),
    ("ewb", "8.50 TO 12.40", None),
    ("timechat", "The event happens in the 8.5 - 12.4 seconds", [8.5, 12.4]),
    ("timechat", PLAIN, None),
    ("timechat", "start time: 8.5\nend time: 12.4", [8.5, 12.4]),
    ("omtg", "<time>1 - 2 seconds</time> and 5 - 6 seconds", [[1.0, 2.0]]),
    ("omtg", "0:05 - 0:07 seconds, 9 - 8 seconds", [[5.0, 7.0]]),
    ("omtg", "[[8.5, 10.0], [1.0, 2.0], [1.0, 2.0]]", [[1.0, 2.0], [8.5, 10.0]]),
    ("omtg", "It starts at 0.0 seconds and ends at 4.8 seconds.", [[0.0, 4.0]]),
    ("omtg", SENTENCE, None),
    ("unitime", THINKING, [[1.0, 5.0], [8.5, 12.4]]),
    ("unitime", "8.5, 12.4, 20", [[8.5, 12.4]]),
    ("vtgrl", S_TO_S, [8.5, 12.4]),
    ("vtgrl", TRAILING, [8.5, 12.4]),
    ("vtgrl", CLOCK, [8.0, 12.0]),
    ("vtgrl", CHINESE, [8.5, 12.4]),
    ("vtgrl", "<answer>none</answer>", None),
]

GOLDEN = {
    "TaRO-eval": "taro",
    "TaRO-reward": "taro_reward",
    "TimeR1-eval": "time_r1",
    "TimeR1-difficulty": "time_r1_difficulty",
    "TimeR1-reward": "time_r1_reward",
    "VideoChat-R1": "videochat_r1",
    "lmms-charades": "lmms",
    "lmms-charades-old": "lmms_old",
    "lmms-timelens": "lmms_timelens",
    "lmms-ewb": "ewb",
    "TimeLens": "timelens",
    "TimeLens-reward": "timelens_reward",
    "TimeChat": "timechat",
    "VLMEvalKit-OMTG": "omtg",
    "UniTime": "unitime",
}


@pytest.mark.parametrize(("parser", "text", "expected"), TABLE)
def test_by_hand(parser: str, text: str, expected: object) -> None:
    row = score(make_scorer(parser), [sample("a", [(8.5, 12.4)])], [Output(text)])[0]
    assert row["pred"] == expected


def test_every_parser_has_a_row_in_the_table() -> None:
    assert {parser for parser, _, _ in TABLE} == set(names("parser"))


@pytest.mark.parametrize("parser", names("parser"))
@pytest.mark.parametrize(
    "text", ["", "\n", "<answer>", "-", "to to to", "1..2 - 3..4", "9" * 400 + " to " + "9" * 400, "<" * 5000, "1:2:3:4:5 - 6"]
)
def test_no_text_breaks_a_parser(parser: str, text: str) -> None:
    entry = get("parser", parser)
    entry.fn(text, duration=30.0, query="q 1", config=entry.config())


@pytest.mark.timeout(20)
@pytest.mark.parametrize("parser", names("parser"))
def test_long_outputs_take_linear_time(parser: str) -> None:
    entry = get("parser", parser)
    for text in ("1 " * 20_000, "1 - " * 10_000, "start at 5 and " * 5_000, "<time>" * 500, "7" * 4_000 + "s", "1.1" * 2_000):
        entry.fn(text, duration=30.0, query="q", config=entry.config())


def test_threshold_operators_are_the_projects_own() -> None:
    strict = {name for name in names("parser") if get("parser", name).config().threshold_op == "gt"}
    assert strict == {"time_r1", "time_r1_difficulty", "time_r1_reward", "unitime"}


def test_cross_evaluator_table(shared_dir: Path) -> None:
    table = json.loads((shared_dir / "golden/text/cross_evaluator_table.json").read_text())
    samples = [sample(row["id"], [table["gt"]], duration=table["duration"]) for row in table["rows"]]
    outputs = [Output(row["text"]) for row in table["rows"]]
    for evaluator, parser in GOLDEN.items():
        for row, golden in zip(score(make_scorer(parser), samples, outputs), table["rows"], strict=True):
            expected = golden["evaluators"][evaluator]
            assert row["pred"] == expected["pred"], (evaluator, golden["text"])
            assert row["iou"] == pytest.approx(expected["iou"], abs=5.1e-5), (evaluator, golden["text"])


@pytest.mark.parametrize("name", ["charades_sta_test_raw_gt", "tvgbench"])
def test_golden_sets(shared_dir: Path, name: str) -> None:
    """Aggregates of all evaluators to 1e-12, overall and for each of the 28 shapes; rows of TaRO and Time-R1 one by one."""
    folder = shared_dir / "golden/text"
    rows = [json.loads(line) for line in (folder / f"{name}_predictions.jsonl").read_text().splitlines()]
    golden = json.loads((folder / f"{name}_metrics.json").read_text())["evaluators"]
    samples = [sample(r["qid"], r["relevant_windows"], duration=r["duration"], video=r["vid"]) for r in rows]
    outputs = [Output(r["output_text"]) for r in rows]
    for evaluator, expected in golden.items():
        scorer = make_scorer(GOLDEN[evaluator])
        scored = score(scorer, samples, outputs)
        op = scorer.config.threshold_op
        assert {"ge": ">=", "gt": ">"}[op] == expected["threshold"]
        assert means(scored, threshold_op=op) == pytest.approx({k: expected[k] for k in ("mIoU", "R1@0.3", "R1@0.5", "R1@0.7")}, abs=1e-12)
        assert sum(failures(scored).values()) == expected["parse_fail"]
        for shape, part in expected["by_shape"].items():
            found = means([s for s, r in zip(scored, rows, strict=True) if r["shape"] == shape], threshold_op=op)
            assert found["mIoU"] == pytest.approx(part["mIoU_nan_as_0"], abs=1e-12), (evaluator, shape)
            assert found["R1@0.5"] == pytest.approx(part["R1@0.5"], abs=1e-12), (evaluator, shape)
        if evaluator in rows[0]:
            assert [s["pred"] for s in scored] == [r[evaluator]["pred"] for r in rows]
            assert [s["iou"] for s in scored] == pytest.approx([r[evaluator]["iou"] for r in rows], abs=1e-12)


def test_official_totals(shared_dir: Path) -> None:
    folder = shared_dir / "golden/text"
    for name in ("charades_sta_test_raw_gt", "tvgbench"):
        metrics = json.loads((folder / f"{name}_metrics.json").read_text())["evaluators"]
        taro = json.loads((folder / f"{name}.taro_official_metrics.json").read_text())
        time_r1 = json.loads((folder / f"{name}.timer1_official_scores.json").read_text())
        assert metrics["TaRO-eval"]["mIoU"] == pytest.approx(taro["mIoU"], abs=1e-12)
        assert 100 * metrics["TimeR1-eval"]["mIoU"] == pytest.approx(time_r1["mIoU"], abs=1e-10)


def test_reward_and_evaluation_read_every_golden_text_alike(shared_dir: Path) -> None:
    """The default parser is the function that the rewards call."""
    from vtgrl.core.spans import parse_span

    rows = [json.loads(line) for line in (shared_dir / "golden/text/tvgbench_predictions.jsonl").read_text().splitlines()]
    entry = get("parser", "vtgrl")
    for row in rows:
        parsed = entry.fn(row["output_text"], duration=row["duration"], query=row["query"], config=entry.config())
        window = parse_span(row["output_text"], duration=row["duration"], query=row["query"]).window
        assert parsed.windows == (() if window is None else (window,))


def test_summaries_are_one_sentence() -> None:
    for name in names("parser"):
        assert re.match(r"\S", get("parser", name).summary), name
