"""Which weights an engine holds: the state machine behind `version`, without any engine in it."""

from __future__ import annotations

from typing import Any

from vtgrl.core.errors import RunError


class HeldWeights:
    """Version of the weights inside an engine, and whether they are still there.

    A deep sleep (level 2) throws the weights away. Waking does not bring them back: only a full publish does, and
    generating before it raises (public fault vllm#16564: it returned garbage in silence). A light sleep (level 1) keeps them.

    Weights of the start model do not count as a policy's: a resumed run may have others in its checkpoint, so the first publish
    sends all. `partial` tells whether the next one may leave out what does not train.
    """

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.asleep = False
        self.lost = False
        self._policy: Any = None

    def partial(self, policy: Any) -> bool:
        """Whether the engine holds all weights of this policy, of an earlier step."""
        return self._policy is policy and not self.lost

    def slept(self, level: int) -> None:
        """The engine went to sleep at `level` (1 or 2)."""
        self.asleep = True
        self.lost = self.lost or level >= 2

    def woke(self) -> None:
        """The engine has its memory again."""
        self.asleep = False

    def published(self, version: int, *, policy: Any = None) -> None:
        """The engine holds all weights of `policy`, those of `version`."""
        self.version = version
        self._policy = policy
        self.lost = False

    def require(self, version: int) -> None:
        """Raise unless the engine holds the weights of `version`.

        Raises:
            RunError: other weights, or none after a deep sleep.
        """
        if self.lost:
            raise RunError(f"the engine's weights are gone after a deep sleep; publish version {version} before generating")
        if self.version != version:
            raise RunError(f"the engine holds the weights of version {self.version}, not {version}; publish before generating")
