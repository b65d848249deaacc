"""Remembers which records a daemon has removed, so that a repeated request to remove one has the same success."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

PIDS_MAX: Final = 10_000
"""Pids that are remembered, beside those of the latest family; the oldest go first."""


class Removed:
    """Holds families of records that are gone, by pid. Numbers are never given again, so it outlives a term."""

    def __init__(self) -> None:
        self._families: OrderedDict[int, list[int]] = OrderedDict()

    def note(self, named: Collection[int], family: list[int]) -> None:
        """Takes a family whose removal is durable. ``named``: the pids that stand for it."""
        while self._families and len(self._families) + len(named) > PIDS_MAX:
            self._families.popitem(last=False)
        self._families.update(dict.fromkeys(named, family))

    def family(self, pid: int) -> list[int]:
        """Returns the pids that were removed together with this one; empty where it was not, or long ago."""
        return self._families.get(pid, [])
