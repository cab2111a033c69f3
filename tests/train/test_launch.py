"""`--nproc`: ranks that meet, and that end together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RANK = Path(__file__).with_name("launch_rank.py")
LAUNCH = "import sys; from vtgrl.train.launch import launch; sys.exit(launch(sys.argv[2:], nproc=int(sys.argv[1])))"


def start(mode: str, folder: Path, *, nproc: int = 2, **kwargs) -> subprocess.Popen:
    command = [sys.executable, "-c", LAUNCH, str(nproc), sys.executable, str(RANK), mode, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def rank_log(folder: Path, rank: int) -> list[str]:
    return (folder / f"rank_{rank}").read_text().splitlines()


@pytest.mark.timeout(120)
def test_ranks_find_each_other_and_only_rank_0_has_stdout(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    out, err = (proc := start("group", tmp_path, env=env)).communicate(timeout=110)
    assert proc.returncode == 0, err
    assert out == "stdout of rank 0\n"
    assert "stdout of rank 1" in err
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert [rank_log(tmp_path, r) for r in (0, 1)] == [[f"3 0 2 {threads}"], [f"3 1 2 {threads}"]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("mode", "code", "says"), [("fail", 2, ""), ("killed", 1, "rank 1 was ended by SIGKILL (out of memory?)")])
def test_a_rank_that_fails_ends_the_others_and_gives_its_exit_code(tmp_path, mode, code, says):
    """The other rank sleeps for a minute and ignores the polite signal: only the launcher's own limit ends it in time."""
    _, err = (proc := start(mode, tmp_path)).communicate(timeout=40)
    assert proc.returncode == code
    assert says in err
    if mode == "fail":
        assert rank_log(tmp_path, 0) == ["SIGTERM"]


@pytest.mark.timeout(60)
def test_an_interrupt_reaches_every_rank_once_and_waits_for_their_checkpoints(tmp_path):
    """As from a terminal: Ctrl-C goes to the whole foreground group."""
    proc = start("interrupt", tmp_path, start_new_session=True)
    wait_for(tmp_path, "ready")
    os.killpg(proc.pid, signal.SIGINT)
    proc.communicate(timeout=40)
    assert proc.returncode == 130
    for rank in (0, 1):
        assert rank_log(tmp_path, rank)[1:] == ["SIGINT", "checkpoint"]


@pytest.mark.timeout(60)
def test_ranks_do_not_outlive_a_launcher_that_is_killed(tmp_path):
    proc = start("interrupt", tmp_path)
    pids = wait_for(tmp_path, "ready")
    proc.kill()
    proc.communicate(timeout=40)
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def wait_for(folder: Path, word: str) -> list[int]:
    """Process ids of both ranks once they have written `word PID`."""
    while True:
        logs = [p.read_text() for p in folder.glob("rank_*")]
        if len(logs) == 2 and all(text.startswith(word) and "\n" in text for text in logs):
            return [int(text.split()[1]) for text in logs]
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
