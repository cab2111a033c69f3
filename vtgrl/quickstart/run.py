"""Run the stages one after the other, each in a process of its own, and tell what came out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vtgrl import __version__
from vtgrl.core.errors import ConfigError, Interrupted, RunError
from vtgrl.core.jsonl import atomic_write
from vtgrl.core.log import logger
from vtgrl.quickstart.gather import gather_report
from vtgrl.quickstart.report import Report, clock, render
from vtgrl.quickstart.stages import Budget, Engine, Stage, pick_engine, plan

DIARY = "quickstart.json"
PAGE = "report.html"


@dataclass(frozen=True)
class Diary:
    """What has been done in a folder: stage key -> its command, and seconds. Lets an interrupted quickstart go on."""

    path: Path
    done: dict[str, dict[str, Any]]

    @classmethod
    def open(cls, out: Path, *, fresh: bool) -> Diary:
        """The diary of `out`.

        Raises:
            ConfigError: `out` holds files of something else.
        """
        path = out / DIARY
        if not path.is_file():
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise ConfigError(f"{out} is not empty and not a quickstart folder; choose another --out")
            return cls(path, {})
        stored = json.loads(path.read_text(encoding="utf-8"))
        usable = not fresh and stored["version"] == __version__
        return cls(path, stored["stages"] if usable else {})

    def seconds(self, stage: Stage) -> float | None:
        """How long a stage took that is done with exactly this command; None: it has to run."""
        entry = self.done.get(stage.key)
        if entry is None or entry["command"] != stage.command or entry["seconds"] is None or not stage.makes.is_file():
            return None
        return float(entry["seconds"])

    def began_before(self, stage: Stage) -> bool:
        """Whether the same command was started and did not end: it can go on from its checkpoint."""
        entry = self.done.get(stage.key)
        return entry is not None and entry["command"] == stage.command and entry["seconds"] is None

    def write(self, stage: Stage, seconds: float | None) -> None:
        """Note that a stage has begun (None) or ended."""
        self.done[stage.key] = {"command": stage.command, "seconds": seconds}
        atomic_write(self.path, json.dumps({"version": __version__, "stages": self.done}, indent=1))


def run_quickstart(
    *, out: Path, seed: int = 0, engine: Engine = "auto", fresh: bool = False, budget: Budget | None = None
) -> dict[str, Any]:
    """Clips, tiny model, SFT, evaluation, GRPO, evaluation, one HTML page.

    Run again with the same arguments, it goes on where it was stopped; stages that are done are not repeated.

    Args:
        out: folder to write; new, empty, or of an earlier quickstart.
        seed: of data, weights and sampling. Clips of different seeds are different.
        engine: who samples in GRPO; auto: vLLM when it is installed, else Hugging Face generate.
        fresh: start over in `out`.
        budget: amounts other than the recipes'.

    Returns:
        {"miou_sft", "miou_grpo", "gain", "engine", "seconds", "report"}.

    Raises:
        ConfigError: `out` holds something else.
        EnvironmentMissing: the engine is not installed.
        RunError: a stage failed. Interrupted: Ctrl-C.
    """
    chosen = pick_engine(engine)
    stages = plan(out, seed=seed, engine=chosen, budget=budget or Budget())
    diary = Diary.open(out, fresh=fresh)
    out.mkdir(parents=True, exist_ok=True)
    seconds = run_stages(stages, diary)
    report = gather_report(out, stages, seconds, seed=seed, engine=chosen)
    atomic_write(out / PAGE, render(report))
    show(report, out / PAGE)
    before, after = report.scores[0].before, report.scores[0].after
    total = sum(seconds.values())
    return {"miou_sft": before, "miou_grpo": after, "gain": after - before, "engine": chosen, "seconds": total, "report": str(out / PAGE)}


def run_stages(stages: Sequence[Stage], diary: Diary) -> dict[str, float]:
    """Run what is not done yet; once one stage runs, all later ones run too. Returns seconds by stage key."""
    seconds: dict[str, float] = {}
    stale = False
    for number, stage in enumerate(stages, 1):
        known = None if stale else diary.seconds(stage)
        mark = f"[{number}/{len(stages)}] {stage.name}"
        if known is not None:
            logger.info("%s: done before, in %s", mark, clock(known))
            seconds[stage.key] = known
            continue
        goes_on = not stale and diary.began_before(stage) and stage.resumes
        stale = True
        logger.info("%s%s\n  $ %s", mark, ", going on" if goes_on else "", stage.command)
        seconds[stage.key] = _run(stage, diary, goes_on=goes_on)
    return seconds


def _run(stage: Stage, diary: Diary, *, goes_on: bool) -> float:
    if not goes_on and stage.folder.exists():
        shutil.rmtree(stage.folder)
    diary.write(stage, None)
    began = time.perf_counter()
    code = _call(stage.argv(resume=goes_on))
    if code == 130:
        raise Interrupted(f"stopped in the stage {stage.name!r}; the same command goes on from there")
    if code or not stage.makes.is_file():
        raise RunError(f"the stage {stage.name!r} failed (exit {code}); its messages are above, its command is: {stage.command}")
    seconds = time.perf_counter() - began
    diary.write(stage, seconds)
    return seconds


def _call(argv: Sequence[str]) -> int:
    """Run a stage; its log goes to our stderr, what it prints goes nowhere. Ctrl-C reaches it, and we wait until it has ended."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=_environment()) as process:
        while True:
            try:
                return 130 if (code := process.wait()) == -signal.SIGINT else code
            except KeyboardInterrupt:
                logger.warning("stopping the stage")


def _environment() -> dict[str, str]:
    """Nothing is fetched, no library draws progress bars between our own lines, and one thread does the work: a tiny model gains
    little from two, and two wait for each other without end when the machine has other work (ten times slower, measured)."""
    return {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_OFFLINE": "1",
        **os.environ,
    }


def show(report: Report, page: Path) -> None:
    """The table, on stdout."""
    table = Table(title=report.title, title_justify="left")
    table.add_column("held-out clips")
    for name in ("after SFT", "after GRPO", "change"):
        table.add_column(name, justify="right")
    for s in report.scores:
        error = [f" ± {e:.{s.digits}f}" if e else "" for e in (s.before_se, s.after_se)]
        cells = f"{s.before:.{s.digits}f}{error[0]}", f"{s.after:.{s.digits}f}{error[1]}", f"{s.gain:+.{s.digits}f}"
        table.add_row(s.name, *cells)
    console = Console()
    console.print(table)
    console.print(f"{clock(sum(s.seconds for s in report.stages))} in all. Curves, clips and spans: {page}", soft_wrap=True)
