"""`make_kit(family)`: a fresh tiny policy with a prompt builder and prompts that are made once a session.

Also makes `rollout_kit` importable, for the worker processes of the tests with several ranks too.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def make_kit(tiny_dir: Callable[[str], Path], request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`make_kit(family, lora=...)` -> Kit."""
    from rollout_kit import Kit, load_kit

    known: dict[str, Kit] = {}

    def make(family: str, **changes: Any) -> Kit:
        world = None if family == "text" else request.getfixturevalue("world_dir")
        kit = load_kit(tiny_dir(family), world, like=known.get(family), **changes)
        return known.setdefault(family, kit) if not changes and family not in known else kit

    yield make
    for kit in known.values():
        kit.builder.close()
