"""Tells where the time of a wait went: at each moment its region waited for a lease, a fence, a split or another thing.

All times are those of the wall clock in microseconds: writers, faults and the daemon's journal share a machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from state_machines.journal.events import Kind, Row
from state_machines.regions.layout import key_of

Process = tuple[str, int]
"""Name and incarnation of a server; an incarnation is the moment at which the process began."""
DAEMON: Final = "the daemon"
FOREVER: Final = 1 << 62
CHAOS, ROUTELESS = "daemon down", "daemon down, region open"
LEASE, LONGER, FENCE, SPLIT = "lease", "lease anew", "fence", "split"
ASSIGN, OPEN, CLOSE, CLIENT = "assign", "open", "close", "client"
OF_CRASHED: Final = {"CRASHED": FENCE, "FENCED": SPLIT, "RELEASED": ASSIGN, "GONE": ASSIGN}
"""What a region waits for whose process is in a state of a crash."""
OF_ONLINE: Final = {"OPENING": OPEN, "CLOSING": CLOSE, "OPEN": CLIENT, "SPLITTING": CLIENT, "MERGING": CLIENT}
"""What a region in a state waits for whose process is alive. CLIENT: it is open, and its client has not found it."""
WITH_SERVER: Final = frozenset(OF_ONLINE)


class Wait(NamedTuple):
    """A wait for the response of one batch. ``region``: that took it in the end; ``key``: of the batch."""

    region: int
    key: bytes
    began_us: int
    ended_us: int

    @property
    def seconds(self) -> float:
        """Returns how long it was."""
        return (self.ended_us - self.began_us) / 1e6


class Outage(NamedTuple):
    """A time in which a process was frozen or dead. ``name``: of a server, or ``DAEMON``."""

    name: str
    began_us: int
    ended_us: int


class _Birth(NamedTuple):
    """A region that has keys from a moment on."""

    since_us: int
    region: int
    start: bytes
    end: bytes


class _State(NamedTuple):
    """A region's or a process's state from a moment on; ``process``: of a region's server."""

    since_us: int
    name: str
    process: Process | None


class Breakdown:
    """Divides waits among what regions of a table waited for. ``lease_us``: of the servers."""

    def __init__(self, rows: Iterable[Row], outages: Iterable[Outage], lease_us: int, table: str) -> None:
        self._lease_us = lease_us
        self._table = table
        self._births: list[_Birth] = []
        self._regions: dict[int, list[_State]] = defaultdict(list)
        self._processes: dict[Process, list[_State]] = defaultdict(list)
        self._outages: dict[str, list[Outage]] = defaultdict(list)
        for outage in outages:
            self._outages[outage.name].append(outage)
        for row in sorted(rows, key=lambda one: (one.ctl_epoch, one.seq)):
            self._enter(row)

    def of(self, wait: Wait) -> Counter[str]:
        """Returns the microseconds of each part of a wait."""
        found: Counter[str] = Counter()
        births = self._births_of(wait)
        moments = [*self._moments(wait, births), wait.ended_us]
        for began_us, ended_us in pairwise(moments):
            region = births[max(0, bisect_right(births, began_us, key=lambda one: one.since_us) - 1)].region
            found[self._part(region, began_us)] += ended_us - began_us
        return found

    def _enter(self, row: Row) -> None:
        process = None if row.server is None or row.incarnation is None else (row.server, row.incarnation)
        state = _State(row.ts_us, row.to_state or "", process)
        if row.kind == Kind.REGION_STATE and row.region is not None:
            self._regions[row.region].append(state)
            if row.table == self._table and row.start is not None and row.end is not None:
                self._births.append(_Birth(row.ts_us, row.region, key_of(row.start), key_of(row.end)))
        elif row.kind == Kind.SERVER_STATE and process is not None:
            self._processes[process].append(state)

    def _births_of(self, wait: Wait) -> list[_Birth]:
        """Returns the regions that had the key of a wait, in order; the row of the last one may be lost in a gap."""
        found = [one for one in self._births if one.start <= wait.key and (not one.end or wait.key < one.end)]
        if wait.region not in {one.region for one in found}:
            since_us = min((state.since_us for state in self._regions[wait.region]), default=wait.began_us)
            found.append(_Birth(since_us, wait.region, b"", b""))
        return sorted(found)

    def _moments(self, wait: Wait, births: Iterable[_Birth]) -> Iterator[int]:
        """Yields the moments of a wait at which its part may change, in order, the beginning first."""
        moments = {wait.began_us, *(birth.since_us for birth in births)}
        regions = (state for birth in births for state in self._regions[birth.region])
        for state in (*regions, *(one for some in self._processes.values() for one in some)):
            moments.add(state.since_us)
        for outages in self._outages.values():
            for one in outages:
                moments |= {one.began_us, one.ended_us, one.began_us + self._lease_us}
        return iter(sorted(one for one in moments if wait.began_us <= one < wait.ended_us))

    def _part(self, region: int, at_us: int) -> str:
        part = self._part_with_daemon(region, at_us)
        if any(one.began_us <= at_us < one.ended_us for one in self._outages[DAEMON]):
            return ROUTELESS if part == CLIENT else CHAOS
        return part

    def _part_with_daemon(self, region: int, at_us: int) -> str:
        state = _at(self._regions[region], at_us)
        if state is None or state.process is None or state.name not in WITH_SERVER:
            return ASSIGN
        crashed = _at(self._processes[state.process], at_us)
        if crashed is not None and crashed.name in OF_CRASHED:
            return OF_CRASHED[crashed.name]
        outage = self._outage_of(state.process, at_us)
        if outage is not None:
            return LEASE if at_us < outage.began_us + self._lease_us else LONGER
        return OF_ONLINE[state.name]

    def _outage_of(self, process: Process, at_us: int) -> Outage | None:
        name, incarnation = process
        for one in self._outages[name]:
            if incarnation < one.began_us <= at_us < one.ended_us:
                return one
        return None


def shown(parts: Counter[str]) -> str:
    """Returns the parts as text, the longest first, without those that are too short to matter."""
    return ", ".join(f"{name} {us / 1e6:.1f} s" for name, us in parts.most_common() if us >= 50_000)


def _at(states: list[_State], at_us: int) -> _State | None:
    index = bisect_right(states, at_us, key=lambda one: one.since_us)
    return states[index - 1] if index else None
