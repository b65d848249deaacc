"""Knows which processes may have regions of which no procedure and no row knows, so that none goes to a second server.

A record that cannot be used, or that an operator has ended, may have sent a region to a server. So after a failover a
region that no usable procedure moves stays where it is until each process in the store has listed what it has, or is
fenced. Invariant: while a process claims a region that it is to close, no other process gets that region.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

from state_machines.regions.model import Region

Key: TypeAlias = tuple[str, int]
K = TypeVar("K")
V = TypeVar("V")

NAMED_MAX: Final = 3
"""Processes that a sentence names; the others are counted."""


class Unheard:
    """Holds the processes that have not listed their regions in this term, and what others have against the model.

    ``held``: pids that wait until a region is known to be free. They run again once a region may have become free.
    """

    def __init__(self) -> None:
        self.processes: set[Key] = set()
        self.held: set[int] = set()
        self._claims: dict[Key, set[int]] = {}
        self._claimants: dict[int, set[Key]] = {}
        self._freed = False

    def begin(self, processes: Iterable[Key]) -> None:
        """Takes the processes that the store names, and that may serve."""
        self.processes.update(processes)

    def listed(self, process: Key, strays: Iterable[int]) -> None:
        """Takes the regions that a process has against the model: all of them, in place of those before."""
        self._freed = self._freed or self.processes == {process}
        self.processes.discard(process)
        found = set(strays)
        for region in self._claims.get(process, set()) - found:
            self.settled(process, region)
        for region in found:
            self._claimants.setdefault(region, set()).add(process)
        if found:
            self._claims[process] = found

    def settled(self, process: Key, region: int) -> None:
        """Notes that a process has closed a region that it was not to have, or is its owner by now."""
        self._freed = self._freed or process in self._claimants.get(region, ())
        _take_from(self._claims, process, region)
        _take_from(self._claimants, region, process)

    def gone(self, process: Key) -> None:
        """Notes that a process is fenced, or has left: it has no region."""
        self.listed(process, ())

    def claims(self, process: Key) -> int:
        """Returns how many regions a process has against the model."""
        return len(self._claims.get(process, ()))

    @property
    def holds_any(self) -> bool:
        """Returns whether :meth:`is_held` may hold for any region."""
        return bool(self.processes or self._claimants)

    def is_held(self, region: Region) -> bool:
        """Checks whether a region may not go to a server yet."""
        return (region.doubtful and bool(self.processes)) or region.id in self._claimants

    def may_have(self, region: Region) -> Iterable[Key]:
        """Returns the processes because of which a region may not go to a server yet."""
        if region.doubtful and self.processes:
            return self.processes
        return self._claimants.get(region.id, ())

    def why_held(self, region: Region) -> str:
        """Returns why a region may not go to a server yet; empty where it may."""
        if region.doubtful and self.processes:
            return f"{_named(self.processes)} may have it, and did not list their regions since the daemon started"
        claimants = self._claimants.get(region.id, ())
        return f"{_named(claimants)} has it, and is to close it" if claimants else ""

    def take_held(self) -> list[int]:
        """Returns the pids that wait, to be run again, if a region may have become free since the last call."""
        if not self._freed:
            return []
        self._freed = False
        held, self.held = self.held, set()
        return sorted(held)


def _take_from(sets: dict[K, set[V]], key: K, value: V) -> None:
    """Removes a value from the set of a key, and the set with its last one."""
    found = sets.get(key, set())
    found.discard(value)
    if not found:
        sets.pop(key, None)


def _named(processes: Iterable[Key]) -> str:
    found = [f"{name},{incarnation}" for name, incarnation in sorted(processes)]
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more
