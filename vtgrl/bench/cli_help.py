"""`vtgrl --help` as it is, against the same command in a process that imports torch first."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from vtgrl.bench.measure.cpu import child_time, interleaved
from vtgrl.bench.measure.scoring import times_less
from vtgrl.bench.types import BenchResult
from vtgrl.core.registry import opt, register

CODE = """
import json, runpy, sys
sys.argv = ["vtgrl", "--help"]
try:
    runpy.run_module("vtgrl", run_name="__main__")
finally:
    sys.stderr.write(json.dumps(sorted(sys.modules)))
"""
WAYS = {"ours": CODE, "baseline": "import torch" + CODE}


@dataclass(frozen=True)
class CliConfig:
    """How often it is run."""

    repeats: int = opt(5, "runs whose least CPU time counts", ge=1)


@register("bench", "cli", config=CliConfig)
def cli_help(*, config: CliConfig) -> BenchResult:
    """`vtgrl --help` imports no torch: CPU time against the same command after `import torch`."""
    outputs = {name: _run(code) for name, code in WAYS.items()}
    modules: dict[str, list[str]] = {name: json.loads(done.stderr) for name, done in outputs.items()}
    seconds = interleaved({name: _runner(code) for name, code in WAYS.items()}, repeats=config.repeats, clock=child_time)
    return BenchResult(
        bench="cli",
        ratio=times_less(seconds)["baseline"],
        exactness=float(outputs["ours"].stdout != outputs["baseline"].stdout),
        unit="CPU time of the process",
        baseline="the same command in a process that imports torch first, as a command line does whose modules import it",
        details={
            "torch_imported": {name: "torch" in found for name, found in modules.items()},
            "modules": {name: len(found) for name, found in modules.items()},
            "cpu_seconds": seconds,
        },
    )


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)


def _runner(code: str) -> Any:
    return lambda: _run(code)
