"""`vtgrl train` up to the point where training starts."""

import json

import pytest

from vtgrl.core.recipe import load_recipe
from vtgrl.core.schema import GrpoRecipe, SftRecipe

PUBLISHED = {
    "time_r1": ("3,754,622,976", 785),
    "time_r1_qwen2_5_vl_7b": ("8,292,166,656", 785),
    "time_r1_qwen3_vl_8b": ("8,767,123,696", 785),
    "taro": ("3,754,622,976", 469),
    "taro_qwen2_5_vl_7b": ("8,292,166,656", 469),
    "taro_qwen3_vl_8b": ("8,767,123,696", 469),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_recipes_pass_the_dry_run_on_their_own_data(cli, shared_dir, name):
    """Steps: 5 passes of 157 batches (with a filter every pass ends with its own short batch), and 3 passes of 2500 rows by 16."""
    path = shared_dir / "data" / "tvgbench" / "timer1_train_2k5.json"
    theirs = ["data.source=time_r1", "data.hold_out=0", "train.val_every=0"] if name.startswith("taro") else []
    done = cli("train", "grpo", "-r", name, *theirs, f"data.path={path}", "--dry-run", "--json", "--nproc", "8")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    parameters, steps = PUBLISHED[name]
    assert (report["model"]["parameters"], report["steps"]) == (parameters, steps)
    assert report["missing"] == []
    assert "2500 rows, 0 rejected" in report["data"]["data.path"]
    assert 2900 < report["tokens"]["vision a clip, mean"] < 3584
    assert report["deepspeed"]["zero_optimization"]["stage"] == 3
    assert report["rollout"]["max_model_len"] in (8192, 9216)
    assert 10 < report["memory_gb_per_rank"]["total"] < 80


def test_the_dry_run_opens_real_rows_and_videos(cli, world_dir, tiny_dir):
    done = cli(
        "train", "sft", "--dry-run", "data.prompt=direct", f"data.path={world_dir / 'world.jsonl'}",
        f"model.path={tiny_dir('qwen2_5_vl')}", "model.dtype=fp32", "train.steps=7", "video.max_frames=16",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "steps  7" in done.out
    assert "looked at" in done.out
    assert "config.json" in done.out
    assert "not here" not in done.out


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], "data.path is empty; add data.path=..."),
        (["data.path=no.json"], "data.path: no file no.json"),
        (["data.path=no.json", "model.path=some/folder"], "model.path: no config.json in some/folder"),
    ],
)
def test_what_a_run_needs_and_is_not_here_is_listed_and_exits_2(cli, overrides, says):
    done = cli("train", "grpo", "-r", "time_r1", *overrides, "--dry-run")
    assert done.code == 2
    assert says in done.err
    assert says in done.out
    assert cli("train", "grpo", "-r", "time_r1", *overrides, "--dry-run", "--allow-missing").code == 0


def test_a_file_without_a_usable_row_is_an_error_even_then(cli, tmp_path):
    (tmp_path / "rows.json").write_text("[]")
    done = cli("train", "grpo", "-r", "time_r1", f"data.path={tmp_path / 'rows.json'}", "--dry-run", "--allow-missing")
    assert done.code == 2
    assert "rows.json" in done.err


def test_a_part_to_freeze_that_does_not_exist_shows_in_the_dry_run(cli):
    done = cli("train", "grpo", "-r", "time_r1", "model.freeze=[visoin]", "--dry-run", "--allow-missing")
    assert done.code == 2
    assert "visoin" in done.err


@pytest.mark.parametrize(("kind", "cls", "extra"), [("sft", SftRecipe, ["data.prompt=direct"]), ("grpo", GrpoRecipe, ["-r", "taro"])])
def test_the_printed_config_is_the_recipe(cli, tmp_path, kind, cls, extra):
    done = cli("train", kind, *extra, "optim.lr=1E-3", "train.steps=08", "--print-config")
    assert done.code == 0
    assert "steps: 8\n" in done.out
    (tmp_path / "r.yaml").write_text(done.out)
    file = "taro" if kind == "grpo" else None
    overrides = ["optim.lr=0.001", "train.steps=8", *([] if kind == "grpo" else extra)]
    assert load_recipe(cls, file=tmp_path / "r.yaml") == load_recipe(cls, file=file, overrides=overrides)


@pytest.mark.parametrize(
    ("args", "env", "says"),
    [
        ([], {}, "2 problems"),
        (["model.path=m", "data.path=d", "--resume", "auto"], {}, "add --run-dir"),
        (["model.path=m", "data.path=d"], {"RANK": "1", "WORLD_SIZE": "2"}, "every rank has to write to the same folder"),
        (["model.path=m", "data.path=d", "-o", "x", "--nproc", "2"], {"RANK": "0", "WORLD_SIZE": "2"}, "leave --nproc out"),
        (["optim.learing_rate=1e-6"], {}, "unknown key 'learing_rate' in optim; did you mean 'lr'?"),
        (["train.steps"], {}, "'train.steps' is not key=value"),
        (["-r", "nobody"], {}, "no recipe 'nobody'"),
    ],
)
def test_a_run_that_cannot_start_is_told_before_anything_is_written(cli, tmp_path, monkeypatch, args, env, says):
    monkeypatch.chdir(tmp_path)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    done = cli("train", "sft", *args)
    assert done.code == 2
    assert says in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_ranks_get_the_recipe_the_overrides_and_one_run_folder(cli, tmp_path):
    """Both ranks start, fail on the missing model, and the command ends with their exit code."""
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "task": "text", "query": "q", "answer": "a"}\n')
    args = ["model.path=./nowhere", "model.dtype=fp32", "data.prompt=plain", f"data.path={tmp_path / 'rows.jsonl'}"]
    done = cli("train", "sft", *args, "--run-dir", str(tmp_path / "run"), "--nproc", "2")
    assert done.code == 2
    assert "model.path './nowhere': no such folder" in done.err
    assert (tmp_path / "run" / "resolved.yaml").is_file()
