"""Declares what the journal of regions queues: values that the loop makes in constant time, one for each event.

They hold records, servers and regions themselves. The writing thread reads only what never changes of them: names, ids,
keys and whole records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from regent_agent.protocol import Operation, Result
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.shapes import ParentRow
from state_machines.regions.states import RegionState, TableState


class Changed(Struct, frozen=True, gc=False):
    """Durable changes of procedures. ``quiet``: those of them without lines."""

    moved: Sequence[Transition]
    quiet: frozenset[int] = frozenset()


class Together(Struct, frozen=True, gc=False):
    """Procedures without lines that made one change together: they began, or they ended without a result.

    ``record``: of one of them, after it. ``before``: their state before it.
    """

    pids: Sequence[int]
    before: State | None
    record: Record
    took_ms: int


class Attached(Struct, frozen=True, gc=False):
    """A procedure with lines begins to move a region. ``record``: of the procedure as it began."""

    region: Region
    pid: int
    record: Record
    state: RegionState
    server: Server | None


class Moved(Struct, frozen=True, gc=False):
    """A transition of a region. ``before`` and ``had``: state and owner before; ``quiet``: it has no lines."""

    region: Region
    pid: int
    record: Record | None
    quiet: bool
    before: RegionState
    state: RegionState
    had: Server | None
    server: Server | None
    token: int
    sequence: int


class Made(Struct, frozen=True, gc=False):
    """New regions of one table, and their state as they were made. ``sources``: in so many others their data begins."""

    table: Table
    regions: Sequence[Region]
    pid: int
    state: RegionState
    sources: int = 0


class Discarded(Struct, frozen=True, gc=False):
    """A region that was split, merged or truncated, and whose data is discarded."""

    parent: ParentRow
    pid: int
    record: Record | None


class Forgotten(Struct, frozen=True, gc=False):
    """A region whose rows were removed at an operator's request. ``state``: its last state, empty without a row."""

    region: int
    table: str
    state: str
    pid: int
    record: Record | None


class Independent(Struct, frozen=True, gc=False):
    """A region that has data of its own, by the word of its server. ``answered``: that is stored for certain."""

    region: Region
    server: Server
    answered: bool


class Dispatched(Struct, frozen=True, gc=False):
    """A batch that goes to a process. ``records``: those of its operations that have lines."""

    server: Server
    number: int
    operations: Sequence[Operation]
    records: Sequence[Record]


class Reported(Struct, frozen=True, gc=False):
    """A result of an operation."""

    server: Server
    result: Result
    record: Record | None
    quiet: bool


class ReportedTogether(Struct, frozen=True, gc=False):
    """Results of operations without lines, which are alike and came in one report. ``record``: of one of them."""

    server: Server
    outcome: str
    pids: Sequence[int]
    record: Record


class ServerMoved(Struct, frozen=True, gc=False):
    """A change of a process; ``regions``: how many it has or may have. ``troubles``: operators should know."""

    server: Server
    before: str
    after: str
    regions: int
    why: str
    pid: int
    troubles: bool


class TableMoved(Struct, frozen=True, gc=False):
    """A change of a table; ``after`` None: it was deleted. ``regions``: how many it has."""

    table: str
    before: TableState | None
    after: TableState | None
    regions: int
    pid: int


Item: TypeAlias = (
    Changed
    | Together
    | Attached
    | Moved
    | Made
    | Discarded
    | Forgotten
    | Independent
    | Dispatched
    | Reported
    | ReportedTogether
    | ServerMoved
    | TableMoved
)


def rows_in(item: Item) -> int:
    """Returns the number of rows that an item becomes."""
    if isinstance(item, Moved):  # most items are
        return 1
    if isinstance(item, Changed):
        return len(item.moved)
    return len(item.regions) if isinstance(item, Made) else 1
