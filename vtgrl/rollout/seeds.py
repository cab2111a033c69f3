"""Seeds of the draws: members of a group differ, a run repeats, another run seed gives other answers.

A draw depends on (run seed, seed of the call, prompt id, member) and on nothing else: not on the rank that holds the
prompt, not on the batch split, so one rank and two draw the same answers. Callers put the step into `seed`. A second copy
of a prompt in the same call (a batch larger than the data set) gets its own number, so copies never give equal answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vtgrl.core.seeds import derive_seed


def prompt_seeds(prompt_ids: Sequence[str], *, run_seed: int, seed: int) -> list[int]:
    """One 31-bit seed a prompt; member m of the group uses it plus m."""
    seen: Counter[str] = Counter()
    seeds = []
    for prompt_id in prompt_ids:
        seeds.append(derive_seed("rollout", run_seed, seed, prompt_id, seen[prompt_id]))
        seen[prompt_id] += 1
    return seeds
