"""`vtgrl data difficulty`: a real model on real clips, gone on after a stop, and a set drawn without one."""

import json
import shutil

import pytest

from vtgrl.core.errors import DataError
from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe
from vtgrl.eval.difficulty import DifficultyOptions, rate

KEYS = ("data.prompt=direct", "video.max_frames=8", "validation.max_tokens=20")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def world(world_dir, tmp_path_factory):
    """Eight clips of the world, one of them broken."""
    folder = tmp_path_factory.mktemp("rated")
    shutil.copytree(world_dir / "videos", folder / "videos")
    rows = (world_dir / "world.jsonl").read_text().splitlines()[:8]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (folder / json.loads(rows[3])["video"]["path"]).write_bytes(b"")
    return folder


def test_rows_get_their_iou(cli, world, taught_dir, tmp_path):
    out = tmp_path / "g.jsonl"
    done = cli(
        "data", "difficulty", "-m", str(taught_dir), "--data", str(world / "rows.jsonl"), "--out", str(out), "--json", "--batch", "3", *KEYS
    )
    assert done.code == 0, done.err
    report, rows = json.loads(done.out), lines(out)
    answers = {row["id"]: row for row in lines(tmp_path / "g.jsonl.answers" / "predictions.jsonl")}
    assert (report["rows"], report["answered"], report["written"]) == (8, 7, 7)
    assert list(report["failed"]) == [lines(world / "rows.jsonl")[3]["id"]]
    assert "is empty" in next(iter(report["failed"].values()))
    assert [row["meta"]["difficulty"] for row in rows] == [pytest.approx(100 * answers[row["id"]]["iou"]) for row in rows]
    assert [row["meta"].get("pred") for row in rows] == [answers[row["id"]]["pred"] for row in rows]
    assert len({row["meta"]["difficulty"] for row in rows}) > 3
    assert report["mean"] == pytest.approx(sum(row["meta"]["difficulty"] for row in rows) / 700)
    assert sum(report["histogram"]) == 7
    assert report["histogram"][10] == sum(row["meta"]["difficulty"] == 100 for row in rows)
    assert report["hopeless"] == sum(row["meta"]["difficulty"] == 0 for row in rows)
    assert rows[0]["video"]["path"].startswith("videos/")  # as in the file it was made from
    assert "data.videos=" in done.err


def test_a_second_start_asks_only_what_is_missing(cli, world, taught_dir, tmp_path, monkeypatch):
    """Killed in the middle of a row; then another number of rows is drawn; then the model has changed."""
    base = ("data", "difficulty", "--data", str(world / "rows.jsonl"), "--out", str(tmp_path / "g.jsonl"), *KEYS)
    assert cli(*base, "-m", str(taught_dir)).code == 0
    whole = (tmp_path / "g.jsonl").read_bytes()
    journal = tmp_path / "g.jsonl.answers" / "predictions.jsonl"
    kept = journal.read_text().splitlines()[:4]
    journal.write_text("\n".join(kept) + '\n{"id": "wor')
    asked = []
    from vtgrl.rollout.engines.hf import HfEngine

    generate = HfEngine.generate

    def noting(self, prompts, **rest):
        asked.extend(p.sample.id for p in prompts)
        return generate(self, prompts, **rest)

    monkeypatch.setattr(HfEngine, "generate", noting)
    assert cli(*base, "-m", str(taught_dir)).code == 0
    assert (tmp_path / "g.jsonl").read_bytes() == whole
    assert len(asked) == 4  # rows 5 to 8; row 4 is tried again and fails before it is asked
    asked.clear()
    done = cli(*base, "-m", str(taught_dir), "--k", "2", "--above", "-1")
    assert (done.code, asked, len(lines(tmp_path / "g.jsonl"))) == (0, [], 2)
    other = shutil.copytree(taught_dir, tmp_path / "other")
    (other / "config.json").touch()
    assert cli(*base, "-m", str(other)).code == 0
    assert len(asked) == 7


def test_a_set_is_drawn_from_what_rows_state(cli, tmp_path):
    rows = [
        {"video": "./dataset/timer1/videos/a.mp4", "duration": 60.0, "timestamp": [1.0, 9.0], "sentence": "x", "qid": f"q{i}",
         "video_start": None, "video_end": None, "difficulty": d, "pred": [1.0, 2.0]}
        for i, d in enumerate([0.0, 5.0, 30.0, 31.0, 99.0])
    ]  # fmt: skip
    (tmp_path / "pool.json").write_text(json.dumps(rows))
    base = ("data", "difficulty", "--data", str(tmp_path / "pool.json"), "-s", "time_r1", "--out", str(tmp_path / "g.jsonl"))
    done = cli(*base, "--k", "2", "--sigma", "0.01")
    assert done.code == 0, done.err
    assert [row["id"] for row in lines(tmp_path / "g.jsonl")] == ["q2", "q3"]
    assert "hopeless   1\n" in done.out
    assert cli(*base, "--k", "9").code == 0
    assert [row["id"] for row in lines(tmp_path / "g.jsonl")] == ["q1", "q2", "q3", "q4"]
    done = cli(*base, "--k", "9", "--strict")
    assert (done.code, "5 rows, 4 of them with p > 0: too few" in done.err) == (2, True)
    (tmp_path / "pool.json").write_text(json.dumps([{k: v for k, v in rows[0].items() if k != "difficulty"}]))
    assert "row 'q0' states no difficulty" in cli(*base).err


def test_no_video_at_all_is_an_error(world, taught_dir, tmp_path):
    keys = [f"model.path={taught_dir}", f"data.path={world / 'rows.jsonl'}", "data.videos=nowhere", *KEYS]
    with pytest.raises(DataError, match=r"none of the 8 rows could be answered; first: .*nowhere"):
        rate(DifficultyOptions(load_recipe(GrpoRecipe, overrides=keys), tmp_path / "g.jsonl"))


def test_a_sampled_answer_is_no_measure(cli, world, tmp_path):
    done = cli(
        "data", "difficulty", "-m", "m", "--data", str(world / "rows.jsonl"), "--out", str(tmp_path / "g"), "validation.temperature=1"
    )
    assert (done.code, "difficulty is that of the greedy answer" in done.err) == (2, True)
