"""`vtgrl data`."""

import json
import shutil


def test_world_writes_clips_and_rows(cli, tmp_path):
    done = cli("data", "world", "--out", str(tmp_path / "w"), "--n", "3", "--seed", "1")
    assert (done.code, done.out) == (0, f"{tmp_path / 'w' / 'world.jsonl'}\n")
    assert len((tmp_path / "w" / "world.jsonl").read_text().splitlines()) == 3
    assert len(list((tmp_path / "w" / "videos").glob("*.mp4"))) == 3
    assert "size is 7" in cli("data", "world", "--out", str(tmp_path / "x"), "--n", "1", "--size", "7").err


def test_check_names_every_row_and_video_that_cannot_be_used(cli, world_dir, tmp_path):
    shutil.copytree(world_dir, tmp_path / "w")
    rows = tmp_path / "w" / "world.jsonl"
    lines = rows.read_text().splitlines()[:4]
    rows.write_text("\n".join([*lines, '{"id": "bad"}']) + "\n")
    broken = tmp_path / "w" / json.loads(lines[1])["video"]["path"]
    broken.write_bytes(b"")
    done = cli("data", "check", str(rows), "--json")
    report = json.loads(done.out)
    assert done.code == 1
    assert (report["samples"], report["usable"]) == (4, 3)
    assert report["broken"][0][0] == str(broken)
    assert report["rejected"][0][0].endswith(":5")
    text = cli("data", "check", str(rows)).out
    assert f"{broken} (1 rows): is empty" in text


def test_check_passes_settings_to_the_source(cli, world_dir):
    assert cli("data", "check", str(world_dir / "world.jsonl"), "split=val").code == 0
    done = cli("data", "check", str(world_dir / "world.jsonl"), "splt=val")
    assert done.code == 2
    assert "unknown key 'splt' in source; did you mean 'split'?" in done.err
    assert cli("data", "check", "no.jsonl").code == 2
