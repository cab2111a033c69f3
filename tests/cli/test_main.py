"""The command line as a whole: help, errors, exit codes."""

import json
import os
import subprocess
import sys

import pytest

from vtgrl.cli import main as cli_main
from vtgrl.cli.common import stdout_for_data
from vtgrl.core import errors


def test_help_lists_the_commands_and_imports_no_torch():
    code = (
        "import sys; sys.argv = ['vtgrl', '--help']\n"
        "from vtgrl.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as e: code = e.code\n"
        "heavy = {'torch', 'transformers', 'numpy', 'vllm', 'deepspeed', 'wandb'} & set(sys.modules)\n"
        "sys.stderr.write(f'{code} {sorted(heavy)}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "0 []"
    for command in ("train", "eval", "data", "merge", "recipes", "ls", "doctor", "quickstart"):
        assert command in done.stdout


def test_python_m_vtgrl_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "vtgrl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "0.1.0\n"


def test_what_libraries_print_goes_to_stderr(capfd):
    with stdout_for_data():
        os.write(1, b"from C\n")
        sys.stdout.write("from Python\n")
    sys.stdout.write("data\n")
    assert capfd.readouterr() == ("data\n", "from C\nfrom Python\n")


def test_the_argument_that_the_deepspeed_launcher_adds_is_taken(cli):
    assert cli("--local_rank=1", "ls").code == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "gropo"], "Did you mean 'grpo'?"),
        (["train", "sft", "--nproc", "0"], "--nproc"),
        (["train", "sft", "--bogus"], "--bogus"),
        (["merge", "x"], "--out"),
        (["eval", "vtg"], "--benchmark"),
    ],
)
def test_wrong_usage_exits_2_and_says_what(cli, args, says):
    done = cli(*args)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RunError("x"), 1),
        (errors.ConfigError("x"), 2),
        (errors.DataError("x"), 2),
        (errors.EnvironmentMissing("x"), 3),
        (errors.Interrupted("x"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_kind_of_error_has_its_exit_code_and_no_traceback(cli, monkeypatch, error, code):
    def fail():
        raise error

    monkeypatch.setattr("vtgrl.core.doctor.examine", fail)
    done = cli("doctor")
    assert done.code == code
    assert done.err == ("" if code == 130 and isinstance(error, KeyboardInterrupt) else "vtgrl: error: x\n")
    assert done.out == ""


def test_debug_shows_the_traceback_as_well(cli, monkeypatch):
    monkeypatch.setenv("VTGRL_DEBUG", "1")
    done = cli("ls", "bogus")
    assert done.code == 2
    assert "Traceback" in done.err
    assert done.err.endswith("recipe-keys\n")


def test_a_rank_says_who_it_is_and_several_problems_come_below_a_count(monkeypatch):
    assert cli_main.error_text(errors.ConfigError("a\nb")) == "vtgrl: error: 2 problems\n  a\n  b\n"
    monkeypatch.setenv("RANK", "3")
    assert cli_main.error_text(errors.ConfigError("a")) == "vtgrl: error: [rank 3] a\n"


def test_lists_are_text_or_one_json_document(cli):
    assert "advantage" in cli("ls").out.split()
    assert "recipe-keys" in json.loads(cli("ls", "--json").out)
    found = {row["name"]: row for row in json.loads(cli("ls", "monitor", "--json").out)}
    assert {"console", "tensorboard", "wandb"} <= set(found)
    assert all(row["summary"] for row in found.values())
    assert "wandb" in cli("ls", "monitor").out
    keys = {row["path"]: row for row in json.loads(cli("ls", "recipe-keys", "--json").out)}
    assert keys["optim.lr"]["default"] == "1e-06"
    assert keys["optim.lr"]["range"] == ">= 0"
    assert cli("ls", "monitr").code == 2


def test_recipes_can_be_listed_shown_and_copied(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [row["name"] for row in json.loads(cli("recipes", "ls", "--json").out)]
    assert {"time_r1", "taro", "taro_qwen3_vl_8b"} <= set(names)
    assert all(row["title"] for row in json.loads(cli("recipes", "ls", "--json").out))
    shown = cli("recipes", "show", "time_r1").out
    assert shown.startswith("# Time-R1")
    assert cli("recipes", "cp", "time_r1").out == "time_r1.yaml\n"
    assert (tmp_path / "time_r1.yaml").read_text() == shown
    assert cli("recipes", "cp", "time_r1").code == 2
    assert cli("recipes", "cp", "taro", str(tmp_path)).code == 0
    assert "did you mean 'taro'?" in cli("recipes", "show", "taroo").err


def test_the_doctor_says_what_is_there_and_exits_3_for_what_is_needed_and_not(cli, monkeypatch):
    monkeypatch.setattr("vtgrl.core.doctor.import_errors", lambda modules: dict.fromkeys(modules, ""))
    done = cli("doctor", "--json")
    found = {row["name"]: row for row in json.loads(done.out)}
    assert done.code == 0
    assert found["torch"]["status"] == "ok"
    assert {"gpu", "vllm", "decord", "memory", "disk", "recipes"} <= set(found)
    monkeypatch.setattr("vtgrl.core.doctor.import_errors", lambda modules: {m: "no GLIBC" if m == "deepspeed" else "" for m in modules})
    done = cli("doctor")
    assert done.code == 3
    assert "deepspeed" in done.err
    assert "does not import: no GLIBC; mend: pip install --force-reinstall deepspeed" in done.out


def test_the_doctor_really_imports():
    from vtgrl.core.doctor import import_errors

    found = import_errors(["json", "no_such_module_here"])
    assert found == {"json": "", "no_such_module_here": "ModuleNotFoundError: No module named 'no_such_module_here'"}


def test_the_doctor_survives_a_package_that_kills_its_process(tmp_path, monkeypatch):
    from vtgrl.core.doctor import import_errors

    (tmp_path / "killer.py").write_text("import os; os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = import_errors(["json", "killer", "csv"])
    assert found["json"] == ""
    assert "crashed" in found["killer"]
