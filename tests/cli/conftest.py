"""Calling the command line in this process."""

import logging
from dataclasses import dataclass

import pytest

from vtgrl.cli.main import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch, capfd):
    """`cli("ls", "reward")` -> exit code, stdout, stderr. The logger is put back afterwards."""
    logger = logging.getLogger("vtgrl")
    before = (logger.handlers[:], logger.level, logger.propagate)
    for name in ("RANK", "WORLD_SIZE", "VTGRL_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: str) -> Done:
        monkeypatch.setattr("sys.argv", ["vtgrl", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capfd.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, out, err)

    yield call
    logger.handlers[:], logger.level, logger.propagate = before
