"""Begins the discard of regions that were split or merged, once no region needs their data: some at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.regions.environment import RegionsEnv
from controller.regions.procedures import discard

TOGETHER: Final = 100
"""Discards that begin at a time."""
UNDER_WAY_MAX: Final = 1_000
"""Discards that go on at a time: each looks for its result once a second. The next ones begin as some end."""
EVERY_S: Final = 1.0


class Discards:
    """Looks for such regions once a second: nothing has to tell it, and it finds them after a failover, too.

    ``start``: submits a procedure with a nonce; ``goes_on``: checks whether the one with a nonce is there.
    """

    def __init__(
        self, env: RegionsEnv, start: Callable[[str, bytes, str], bool], goes_on: Callable[[str], bool]
    ) -> None:
        self._env, self._start, self._goes_on = env, start, goes_on
        self._next_s = 0.0

    def begin(self) -> None:
        """Begins some discards; forgets the times of regions that went with their table."""
        env = self._env
        if not env.parents_ms or env.clock() < self._next_s:
            return
        self._next_s = env.clock() + EVERY_S
        for gone in env.parents_ms.keys() - env.model.parents.keys():
            del env.parents_ms[gone]
        begun = 0
        for parent in discard.due(env.model)[:UNDER_WAY_MAX]:
            if self._goes_on(nonce := f"discard of region {parent.id}"):
                continue
            if begun == TOGETHER or not self._start(*discard.discarding(parent), nonce):
                return
            begun += 1
