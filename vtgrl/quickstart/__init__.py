"""`vtgrl quickstart`: watch a tiny model learn to ground language in video, in minutes on a CPU."""

from vtgrl.quickstart.run import run_quickstart
from vtgrl.quickstart.stages import Budget

__all__ = ["Budget", "run_quickstart"]
