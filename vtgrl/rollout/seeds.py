"""Seeds of the draws: members of a group differ, a run repeats, another run seed gives other answers.

A draw depends on (run seed, seed of the call, prompt id, copy, member) and on nothing else: not on the rank that holds the
prompt, not on the batch split, so one rank and two draw the same answers. Callers put the step into `seed`. Copies of a prompt in
one step (a batch larger than the data set) are numbered over all ranks (`Prompt.copy`), so they never give equal answers; copies in a
call that nobody numbered are numbered here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vtgrl.core.seeds import derive_seed
from vtgrl.model.types import Prompt


def prompt_seeds(prompts: Sequence[Prompt], *, run_seed: int, seed: int) -> list[int]:
    """One 31-bit seed a prompt; member m of the group uses it plus m."""
    seen: Counter[tuple[str, int]] = Counter()
    seeds = []
    for prompt in prompts:
        key = (prompt.sample.id, prompt.copy)
        seeds.append(derive_seed("rollout", run_seed, seed, prompt.sample.id, prompt.copy + seen[key]))
        seen[key] += 1
    return seeds
