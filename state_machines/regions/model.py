"""Holds the regions of a domain, their tables and servers: the authority that servers have to conform to.

It is built from the catalog and the procedure records, and changes only after the store has. Invariants: a region is in
``server.regions`` of its server alone; at most one procedure is attached to it (``pid``); keys of a table have no hole.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from state_machines.regions.damage import Damages, RowKind
from state_machines.regions.entities import Region, Server, Table, place_of, start_of
from state_machines.regions.marks import Marks
from state_machines.regions.shapes import ParentRow, PublishedRow, Snapshot, Source
from state_machines.regions.states import (
    IN_TRANSITION,
    OWNED,
    VALID_PREVIOUS,
    RegionState,
    ServerState,
)

BURIED_MAX: Final = 1_000
"""Names of fenced servers that are remembered, beside those that have a process in the store."""
FORGOTTEN_TOGETHER: Final = 100
"""Names that one change forgets at most: a store may have thousands too many, and a transaction has a bound."""


class Buried(NamedTuple):
    """A process that is fenced, and the names that are forgotten for it."""

    key: tuple[str, int]
    number: int
    forgotten: tuple[str, ...]


class InvalidTransition(Exception):
    """A transition that the table lacks: a fault of the code."""


class Ids:
    """Ids of regions: of those in use, and of those that are stored and left out."""

    def __init__(self, known: Container[int], left_out: Container[int]) -> None:
        self._known = known
        self._left_out = left_out

    def __contains__(self, region: object) -> bool:
        return region in self._known or region in self._left_out


class Observer(Protocol):
    """Is told of each change of a region, once it is entered; must not wait or raise."""

    def attached(self, region: Region, pid: int) -> None:
        """Takes a procedure that begins to move a region."""

    def moved(self, region: Region, before: RegionState, had: Server | None) -> None:
        """Takes a transition. ``had``: the owner before."""


class Regions:
    """Holds everything; ``transit``: regions in transition and the procedures' attachments, by id.

    ``buried``: by name, the highest incarnation of a process that was fenced, the latest one last.
    ``observer``: is told of changes. ``damages``: what the catalog holds that could not be entered.
    ``parents``: regions that were split or merged, by id. ``sources``: what regions refer to, by their ids.
    ``former``: by id, the names of the servers that have closed regions. ``snapshots`` and ``published``: by name.
    ``drafts``: what is listed of snapshots that are not complete, by number.
    """

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.namespaces: set[str] = set()
        self.tables: dict[str, Table] = {}
        self.regions: dict[int, Region] = {}
        self.servers: dict[tuple[str, int], Server] = {}
        self.buried: dict[str, int] = {}
        self.transit: dict[int, Region] = {}
        self.held: dict[int, Region] = {}
        """Regions that procedures have which leave them where they are, so that these are not in transition."""
        self.marks = Marks()
        self.damages = Damages()
        self.parents: dict[int, ParentRow] = {}
        self.sources: dict[int, tuple[Source, ...]] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.former: dict[int, str] = {}
        self.drafts: dict[str, dict[int, tuple[Source, ...]]] = {}
        self.published: dict[str, PublishedRow] = {}
        self.strangers: dict[tuple[str, int], int] = {}
        """How many regions are left out because their rows name a process that no row of a server names."""
        self.proofs: dict[tuple[str, int], str] = {}
        """Proofs of processes without a row, while a catalog is entered."""

    @property
    def ids(self) -> Ids:
        """Returns the ids of all regions, with those that are left out."""
        return Ids(self.regions, self.damages.regions)

    # -- tables

    def add_table(self, table: Table) -> None:
        """Enters a table without regions."""
        self.tables[table.name] = table

    def add_regions(self, table: Table, regions: Iterable[Region]) -> None:
        """Enters regions of a table that are new; sorts unless they come in the order of their keys."""
        found = table.regions
        sorted_ = True
        for region in regions:
            if region.id not in self.regions:
                self.regions[region.id] = region
                sorted_ = sorted_ and (not found or found[-1].start <= region.start)
                found.append(region)
                table.counts[region.state] += 1
        if not sorted_:
            found.sort(key=start_of)

    def fill(self, table: Table, regions: Iterable[Region]) -> None:
        """Enters some regions of a table that are new, each in its place; their keys had no region."""
        for region in regions:
            if region.id not in self.regions:
                self.regions[region.id] = region
                insort(table.regions, region, key=start_of)
                table.counts[region.state] += 1
                self.damages.drop_keys(table.name, region.start, region.end, region.id)

    def drop_table(self, name: str) -> None:
        """Removes a table and its regions, with its parents."""
        table = self.tables.pop(name, None)
        if table is not None:
            self.drop_last(table, len(table.regions))
            self.damages.drop_table(name)
            for parent in [one.id for one in self.parents.values() if one.table == name]:
                del self.parents[parent]

    def drop_last(self, table: Table, count: int) -> None:
        """Removes the last regions of a table that is being deleted."""
        first = len(table.regions) - count
        for region in table.regions[first:]:
            del self.regions[region.id]
            self.sources.pop(region.id, None)
            self._settle(region)
            table.counts[region.state] -= 1
            self._leave(region)
        del table.regions[first:]

    def drop(self, region: Region) -> None:
        """Removes a region that no server has, with what it refers to: others have its keys."""
        table = region.table
        if (at := place_of(region)) is not None:
            del table.regions[at]
        self.regions.pop(region.id, None)
        self.sources.pop(region.id, None)
        self._settle(region)
        table.counts[region.state] -= 1
        self._leave(region)

    def replace_from(self, table: Table, at: int, regions: Sequence[Region]) -> None:
        """Puts new regions with the same keys in place of those from a position on, which no server has."""
        for region in table.regions[at : at + len(regions)]:
            del self.regions[region.id]
            self.sources.pop(region.id, None)
            self._settle(region)
            table.counts[region.state] -= 1
            self._leave(region)
        table.regions[at : at + len(regions)] = regions
        for region in regions:
            self.regions[region.id] = region
            table.counts[region.state] += 1

    def located(self, table: Table, key: bytes) -> Region | None:
        """Returns the region that has a key; None where the table has no regions."""
        at = bisect_right(table.regions, key, key=start_of)
        return table.regions[at - 1] if at else None

    # -- servers

    def online(self) -> Iterator[Server]:
        """Yields servers that may get regions."""
        cordoned = self.marks.is_cordoned
        servers = (one for one in self.servers.values() if one.state is ServerState.ONLINE and one.here)
        return (one for one in servers if not (one.leaving or cordoned(one.name)))

    def is_fenced(self, key: tuple[str, int]) -> bool:
        """Checks whether a process can have no region any more. One that is not known has left or was dealt with."""
        server = self.servers.get(key)
        return server is None or server.state is ServerState.FENCED

    def current(self, name: str) -> Server | None:
        """Returns the process with this name that is online."""
        found = (one for one in self.servers.values() if one.name == name and one.state is ServerState.ONLINE)
        return max(found, key=lambda one: one.incarnation, default=None)

    def stranger(self, name: str, incarnation: str = "") -> tuple[str, int] | None:
        """Returns the latest process with this name of which rows of regions alone tell; None without one."""
        found = (one for one in self.strangers if one[0] == name and incarnation in ("", str(one[1])))
        return max(found, default=None)

    def latest(self, name: str) -> Server | None:
        """Returns the process with this name that began last, whatever its state is."""
        found = (one for one in self.servers.values() if one.name == name)
        return max(found, key=lambda one: one.incarnation, default=None)

    def is_buried(self, key: tuple[str, int]) -> bool:
        """Checks whether a process was fenced, or began before one that was, as far as that is remembered."""
        last = self.buried.get(key[0])
        return last is not None and key[1] <= last

    def bury(self, key: tuple[str, int], number: int) -> Buried:
        """Returns the change that remembers a fenced process, and forgets some of the oldest where too many are.

        ``number``: grows from one to the next.
        """
        in_use = {name for name, _ in self.servers} | {key[0]}
        old = [name for name in self.buried if name not in in_use]
        surplus = max(0, len(old) + 1 - BURIED_MAX)
        return Buried(key, number, tuple(old[: min(surplus, FORGOTTEN_TOGETHER)]))

    def enter_buried(self, change: Buried) -> None:
        """Enters a change that is durable."""
        name, incarnation = change.key
        self.buried[name] = max(incarnation, self.buried.pop(name, 0))
        for one in change.forgotten:
            self.buried.pop(one, None)

    def forget(self, name: str) -> None:
        """Forgets the name of a fenced process."""
        self.buried.pop(name, None)
        self.damages.drop_named(RowKind.BURIED, name)

    def drop_server(self, key: tuple[str, int]) -> None:
        """Removes a process that has no regions; its row is gone."""
        self.servers.pop(key, None)
        self.damages.drop_named(RowKind.SERVER, f"{key[0]},{key[1]}")

    # -- regions

    def attach(self, region: Region, pid: int) -> None:
        """Attaches a procedure: no other one moves the region until :meth:`detach`."""
        if region.id not in self.transit:
            self._set_out(region)
        if region.pid != pid:
            region.pid = pid
            if self.observer is not None:
                self.observer.attached(region, pid)

    def take(self, region: Region, pid: int, ancestors: Collection[int] = ()) -> bool:
        """Attaches a procedure at the begin of its step; False where another one, no ancestor of it, has the region.

        What a step decides is entered later: of two steps in one turn the second one finds the region taken.
        """
        if region.pid not in (0, pid) and region.pid not in ancestors:
            return False
        self.attach(region, pid)
        return True

    def hold(self, region: Region, pid: int, ancestors: Collection[int] = ()) -> bool:
        """Attaches a procedure that leaves the region where it is, so that it is not in transition; see :meth:`take`.

        False where another procedure, no ancestor of it, has the region.
        """
        if region.pid not in (0, pid) and region.pid not in ancestors:
            return False
        region.pid = pid
        if region.state not in IN_TRANSITION:
            self._settle(region)
        if region.id not in self.transit:
            self.held[region.id] = region
        return True

    def detach(self, region: Region, pid: int) -> None:
        """Ends the attachment, if it is this procedure's."""
        if region.pid == pid:
            region.pid = 0
            self.held.pop(region.id, None)
            if region.state not in IN_TRANSITION:
                self._settle(region)

    def move(self, region: Region, state: RegionState, server: Server | None, now_ms: int) -> None:
        """Enters a transition; raises :class:`InvalidTransition`. The owner is ``server`` from now on."""
        if region.state not in VALID_PREVIOUS[state]:
            raise InvalidTransition(f"{region} cannot go from {region.state.name} to {state.name}")
        before, had = region.state, region.server
        if had is not server:
            self._leave(region)
            region.server = server
            if server is not None:
                server.regions[region.id] = region
        counts = region.table.counts
        counts[before] -= 1
        counts[state] += 1
        region.state = state
        region.changed_ms = now_ms
        if server is not None and self.former:
            self.former.pop(region.id, None)
        if state in OWNED and server is not None and server.here:
            region.doubtful = False
        if state not in IN_TRANSITION and not region.pid:
            self._settle(region)
        elif region.id not in self.transit:
            self._set_out(region)
        if self.observer is not None:
            self.observer.moved(region, before, had)

    @staticmethod
    def restate(region: Region, state: RegionState) -> None:
        """Enters a state that is known already, as one that a record tells; all others are moves."""
        counts = region.table.counts
        counts[region.state] -= 1
        counts[state] += 1
        region.state = state

    def _set_out(self, region: Region) -> None:
        self.held.pop(region.id, None)
        self.transit[region.id] = region.table.transit[region.id] = region

    def _settle(self, region: Region) -> None:
        self.held.pop(region.id, None)
        self.transit.pop(region.id, None)
        region.table.transit.pop(region.id, None)

    def _leave(self, region: Region) -> None:
        if self.former:
            self.former.pop(region.id, None)
        if region.server is not None:
            region.server.regions.pop(region.id, None)
            region.server = None
