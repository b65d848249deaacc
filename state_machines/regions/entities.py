"""Tables, servers and regions as a model holds them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

DEFAULT_NAMESPACE: Final = "default"
"""Namespace of tables whose name has none."""
STATES: Final = max(RegionState) + 1


class Table(msgspec.Struct, gc=False, eq=False):
    """A table. ``regions``: all of them, in the order of their start keys. ``version``: of its options.

    ``counts``: how many regions are in each state, by its value. ``transit``: its regions in that of the model.
    """

    name: str
    kind: TableKind
    state: TableState
    options: dict[str, str]
    regions: list[Region]
    counts: list[int] = msgspec.field(default_factory=lambda: [0] * STATES)
    transit: dict[int, Region] = msgspec.field(default_factory=dict)
    version: int = 0

    def count(self, state: RegionState) -> int:
        """Returns the number of its regions in a state, without a look at each."""
        return self.counts[state]

    def clear(self) -> None:
        """Removes all regions from the table, not from the model."""
        self.regions.clear()
        self.transit.clear()
        self.counts = [0] * STATES

    @property
    def namespace(self) -> str:
        """Returns the part of the name before the colon, ``default`` without one."""
        return namespace_of(self.name)


class Server(msgspec.Struct, gc=False, eq=False):
    """One process of a server. ``regions``: those that it has or may have, by id.

    ``deadline_s``: end of its lease, on the loop's clock. ``here``: it has registered at this daemon. ``confirmed``: it
    has polled since, so it has the response, and serves under the lease and the fence of this daemon. ``listed_s``: its
    regions were compared then. ``leaving``: its regions are moved away; ``forced``: also those that rest after a move.
    ``expected``: regions for which a step has chosen it, and whose open is not entered yet. ``load``: figures that it
    sent. ``proof``: digest of the proof of its connections. It is empty where the process registered without one, None
    where it has not registered at this daemon, and its row has none. ``features``: names of what it can do beyond
    opening and closing regions, as it said when it registered. ``stored``: it has a row that can be read.
    """

    name: str
    incarnation: int
    address: str
    software: str
    state: ServerState
    regions: dict[int, Region]
    deadline_s: float = 0.0
    here: bool = False
    confirmed: bool = False
    listed_s: float = 0.0
    leaving: bool = False
    forced: bool = False
    expected: int = 0
    load: dict[str, int] = msgspec.field(default_factory=dict)
    proof: str | None = None
    features: frozenset[str] = frozenset()
    stored: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """Returns what names the process."""
        return self.name, self.incarnation

    def __str__(self) -> str:
        return f"{self.name},{self.incarnation}"


class Region(msgspec.Struct, gc=False, eq=False):
    """A region. ``token``: of its present or latest open; ``pid``: of the procedure that is attached, 0 without.

    ``opening``: token of the open that is under way, or was the latest one under way.
    ``changed_ms``: the latest change of its state, on the loop's clock. ``doubtful``: known from its row alone: a
    server may have it by a procedure whose record says nothing any more. ``version``: of its table, as it was opened
    last. ``clean``: its latest owner had it open, and said that it has closed it: no edit waits beside its data.
    """

    id: int
    table: Table
    start: bytes
    end: bytes
    state: RegionState
    server: Server | None = None
    token: int = 0
    sequence: int = 0
    pid: int = 0
    changed_ms: int = 0
    opening: int = 0
    doubtful: bool = False
    version: int = 0
    clean: bool = False

    def __str__(self) -> str:
        return f"{self.table.name}#{self.id}"


def start_of(region: Region) -> bytes:
    """Returns the start key, by which regions are sorted."""
    return region.start


def place_of(region: Region) -> int | None:
    """Returns the position of a region in its table, also beside others with its start key; None where it is gone."""
    regions = region.table.regions
    for at in range(bisect_left(regions, region.start, key=start_of), len(regions)):
        if regions[at] is region:
            return at
        if regions[at].start != region.start:
            return None
    return None


def namespace_of(table: str) -> str:
    """Returns the namespace of a table."""
    namespace, colon, _ = table.partition(":")
    return namespace if colon else DEFAULT_NAMESPACE
