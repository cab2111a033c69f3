"""One logger, to stderr: rich on a terminal, plain lines elsewhere. stdout is for data."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from functools import cache

from rich.console import Console

logger = logging.getLogger("vtgrl")


@cache
def console() -> Console:
    """The one rich console on stderr, so that a live line and log lines do not tear each other."""
    return Console(stderr=True)


def setup_logging(level: int = logging.INFO) -> None:
    """Send vtgrl's log to stderr. Ranks above 0 (environment variable RANK) only report warnings, with their rank."""
    rank = os.environ.get("RANK", "0")
    handler = _handler(rank)
    logger.handlers[:] = [handler]
    logger.setLevel(level if rank == "0" else max(level, logging.WARNING))
    logger.propagate = False
    # DeepSpeed still calls torch's old names: nothing that a user of vtgrl can mend, on every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")


def _handler(rank: str) -> logging.Handler:
    if sys.stderr.isatty() and rank == "0":
        from rich.logging import RichHandler  # slow to import

        return RichHandler(console=console(), show_path=False, log_time_format="%H:%M:%S", markup=False)
    handler = logging.StreamHandler(sys.stderr)
    mark = "" if rank == "0" else f"[rank {rank}] "
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {mark}%(message)s", "%H:%M:%S"))
    return handler
