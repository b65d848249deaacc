"""Counts the regions of a model by their states, without a look at each one: each table keeps its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from controller.regions.procedures import tables
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Record
from state_machines.regions.changes import SETTLED, awaits_crash, is_stranded
from state_machines.regions.entities import Region, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import OWNED, RegionState, ServerState, TableState

ENABLED: Final = TableState.ENABLED
MAY_BE_STRANDED: Final = frozenset(RegionState) - {RegionState.OPEN, RegionState.FAILED_OPEN}
"""States of regions that are stranded where their table is enabled, and nothing goes on for them."""


class OfTables(NamedTuple):
    """Numbers of regions by the name of their table: in transition, waiting for a crash, and stranded."""

    moving: Counter[str]
    waiting: Counter[str]
    stranded: Counter[str]


def by_state(model: Regions) -> Counter[RegionState]:
    """Returns the number of regions in each state; without the open ones that wait for the crash of a server."""
    found = Counter({state: sum(one.count(state) for one in model.tables.values()) for state in RegionState})
    found[RegionState.OPEN] -= waiting(model)
    return +found


def waiting(model: Regions) -> int:
    """Returns the number of regions that wait for the crash of their server, see :func:`awaits_crash`."""
    left = sum(len(one.regions) for one in model.servers.values() if one.state is not ServerState.ONLINE)
    if not left:
        return 0
    return left - sum(
        one.server is not None and one.server.state is not ServerState.ONLINE and one.state is not RegionState.OPEN
        for one in model.transit.values()
    )


def waiting_of_tables(model: Regions) -> Counter[str]:
    """Counts by table the regions that wait for the crash of their server; it looks at those of such servers alone."""
    crashed = (one for one in model.servers.values() if one.state is not ServerState.ONLINE)
    return Counter(one.table.name for server in crashed for one in server.regions.values() if awaits_crash(one))


def of_tables(model: Regions) -> OfTables:
    """Counts regions by table; it looks at those in transition, and at those of servers that crashed."""
    moving = Counter(one.table.name for one in model.transit.values())
    return OfTables(moving, waiting_of_tables(model), stranded(model))


def stranded(model: Regions) -> Counter[str]:
    """Counts by table the regions that are not open though it is enabled, and for which nothing goes on."""
    found = Counter({one.name: stranded_at_rest(one) for one in model.tables.values() if one.state is ENABLED})
    for region in chain(model.transit.values(), model.held.values()):
        if region.table.state is ENABLED:
            found[region.table.name] += is_stranded(region) - (region.state in MAY_BE_STRANDED)
    for region in _left_to_crashes(model):
        found[region.table.name] -= region.table.state is ENABLED
    return found


def _left_to_crashes(model: Regions) -> Iterator[Region]:
    """Yields regions that are known from their rows alone, are not open, and that the crash of their server sees to."""
    for server in model.servers.values():
        if server.state is not ServerState.ONLINE:
            for region in server.regions.values():
                if region.state in MAY_BE_STRANDED and not (region.id in model.transit or region.id in model.held):
                    yield region


def stranded_at_rest(table: Table) -> int:
    """Counts regions of an enabled table that are stranded unless a procedure moves them."""
    return sum(map(table.count, MAY_BE_STRANDED))


def halted(model: Regions, records: Iterable[Record]) -> list[str]:
    """Returns the tables that are on their way to another state, and that no procedure takes there."""
    found = {table.name for table in model.tables.values() if table.state not in SETTLED}
    if not found:
        return []
    for record in records:
        if record.kind in tables.NAMES and not record.state.is_final:
            task: TableTask = TABLE_TASK.decode(record.data)
            found.discard(task.table)
    return sorted(found)


def servers_of(model: Regions) -> Counter[str]:
    """Counts processes of servers by state."""
    return Counter(
        "leaving" if one.leaving and one.state is ServerState.ONLINE else one.state.name.lower()
        for one in model.servers.values()
    )


def owned_by_state(model: Regions, server: tuple[str, int]) -> Counter[RegionState]:
    """Counts the regions that a process has or may have."""
    return Counter(one.state for one in model.servers[server].regions.values() if one.state in OWNED)
