"""Runs procedures that move regions again, in portions: a table, or a server, may have a hundred thousand of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from state_machines.regions.model import Region

TOGETHER: Final = 1_000
"""Procedures that one turn of the loop wakes."""


class Waking:
    """Holds regions whose procedures are to run again. ``wanted`` is called where there are some."""

    def __init__(self) -> None:
        self.wanted: Callable[[], None] = lambda: None
        self._of: dict[int, Mapping[int, Region]] = {}
        self._pids: deque[int] = deque()

    def __bool__(self) -> bool:
        return bool(self._of or self._pids)

    def add(self, regions: Mapping[int, Region]) -> None:
        """Has the procedures of all these regions run; those of the same mapping run once where it comes again."""
        self._of[id(regions)] = regions
        self.wanted()

    def add_pids(self, pids: Sequence[int]) -> None:
        """Has these procedures run, in this order."""
        self._pids.extend(pids)
        if pids:
            self.wanted()

    def take(self) -> list[int]:
        """Removes and returns some pids."""
        if not self._pids and self._of:
            regions = self._of.pop(next(iter(self._of)))
            self._pids.extend([one.pid for one in regions.values() if one.pid])
        return [self._pids.popleft() for _ in range(min(TOGETHER, len(self._pids)))]
