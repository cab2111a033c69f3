"""Monitors show a run; after a resume the later value of a step counts (public fault 64)."""

import io
import logging
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from vtgrl.core.registry import get, names
from vtgrl.core.schema import LogConfig, SftRecipe
from vtgrl.train.monitor import console as console_monitor
from vtgrl.train.monitor_types import MonitorContext


def context(folder: Path, **kwargs) -> MonitorContext:
    return MonitorContext(folder, SftRecipe(log=LogConfig(**kwargs)), 5)


def start(name: str, folder: Path, steps: Iterable[int], *, offset: float = 0.0, **config) -> None:
    """One start of a run: from its first to its last step."""
    entry = get("monitor", name)
    monitor = entry.fn(context(folder), config=entry.config(**config))
    for step in steps:
        monitor.log(step, {"loss": step + offset, "val/miou": float("nan")})
    monitor.close()


@pytest.fixture
def no_network(monkeypatch):
    """Any connection beyond this machine fails the test."""
    real = socket.socket.connect

    def connect(self, address):
        host = address[0] if isinstance(address, tuple) else ""
        assert self.family == socket.AF_UNIX or host in ("127.0.0.1", "localhost", "::1"), f"connects to {address}"
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def test_every_monitor_says_what_it_is():
    assert {"console", "tensorboard", "wandb"} <= set(names("monitor"))
    assert all(get("monitor", name).summary for name in ("console", "tensorboard", "wandb"))


def test_the_run_is_named_after_its_folder_unless_the_recipe_names_it(tmp_path):
    assert context(tmp_path / "runs" / "a").name == "a"
    assert context(tmp_path, name="mine").name == "mine"


def test_away_from_a_terminal_the_console_writes_few_lines(tmp_path, monkeypatch, caplog):
    screen = io.StringIO()
    logger = logging.getLogger("vtgrl")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(screen)])
    caplog.set_level(logging.INFO, logger="vtgrl")
    entry = get("monitor", "console")
    monitor = entry.fn(context(tmp_path), config=entry.config(every_s=3600.0))
    for step in range(1, 6):
        monitor.log(step, {"loss": 1.0 / step, "unknown": 3.0} | ({"val/miou": 0.25} if step == 3 else {}))
    monitor.close()
    assert screen.getvalue().splitlines() == [
        "step 1/5  loss 1",
        "step 3/5  loss 0.3333  val/miou 0.25",
        "step 5/5  loss 0.2",
    ]


def test_on_a_terminal_the_console_redraws_one_line(tmp_path, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(console_monitor, "console", lambda: Console(file=screen, force_terminal=True, width=100))
    entry = get("monitor", "console")
    monitor = entry.fn(context(tmp_path), config=entry.config())
    for step in range(1, 6):
        monitor.log(step, {"loss": 1.0 / step})
    monitor.close()
    last = screen.getvalue().replace("\r", "\n").strip().splitlines()[-2]
    assert "5/5" in last
    assert "loss 0.2" in last


def test_tensorboard_forgets_what_a_crashed_start_wrote_beyond_the_checkpoint(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    start("tensorboard", tmp_path, range(1, 6))
    start("tensorboard", tmp_path, range(3, 6), offset=0.5)
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    assert [(e.step, e.value) for e in reader.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 3.5), (4, 4.5), (5, 5.5)]


@pytest.mark.timeout(120)
def test_wandb_works_offline_and_a_resumed_run_keeps_its_id_and_all_steps(tmp_path, monkeypatch, no_network):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    start("wandb", tmp_path, [1, 2, 3, 4, 5, 2])
    start("wandb", tmp_path, range(3, 6), offset=0.5)
    files = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    identity = (tmp_path / "wandb_id.txt").read_text()
    assert len(files) == 2
    assert {file.stem for file in files} == {f"run-{identity}"}
    wanted = [[(s, s) for s in (1, 2, 3, 4, 5, 2)], [(s, s + 0.5) for s in range(3, 6)]]
    deadline = time.monotonic() + 30
    while [wandb_rows(file) for file in files] != wanted and time.monotonic() < deadline:
        time.sleep(0.1)  # wandb's own process flushes the file a little after `finish`
    assert [wandb_rows(file) for file in files] == wanted


def wandb_rows(file: Path) -> list[tuple[float, float]]:
    """(step, loss) of every history row of an offline file: protobuf messages in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, message, found = file.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # no room for a header: padding up to the next block
            position += 32768 - position % 32768
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        message += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or last part
            record = Record()
            record.ParseFromString(message)
            items = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            message = b""
            if "loss" in items:
                found.append((float(items["step"]), float(items["loss"])))
    return found
