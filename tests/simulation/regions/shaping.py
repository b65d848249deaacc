"""What operators do with the shapes of tables: splits, merges, truncations, options, snapshots, clones, and aborts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from controller.procedures.requests import ProcedureRefused
from controller.regions.procedures import merge, modification, move, snapshots, split, table_work, tables
from controller.regions.procedures.messages import (
    MOVE,
    SNAPSHOT_TASK,
    TABLE_TASK,
    TABLE_WORK,
    Move,
    SnapshotTask,
    TableTask,
    TableWork,
)
from metadata_store.catalog.rows import HeirRow, RegionRow, SnapshotRow
from metadata_store.records.port import StoreFailed
from regent_agent.protocol import FLUSH
from state_machines.procedures.record import Caller
from state_machines.regions.shapes import name_in
from state_machines.regions.states import TableState
from tests.simulation.regions.actions import submit, too_low, verb
from tests.simulation.regions.clients import KEYS
from tests.simulation.regions.operators import end

if TYPE_CHECKING:
    from controller.regions.term import RegionsTerm
    from tests.simulation.regions.world import SimulatedRegions

SHAPING: Final = frozenset(
    {split.NAME, merge.NAME, tables.TRUNCATE, modification.NAME, snapshots.MAKE, tables.CLONE, tables.RESTORE}
)
"""Kinds that an abort of such procedures chooses from."""


def _asks(world: SimulatedRegions, kind: str, data: Callable[[RegionsTerm], Awaitable[bytes]]) -> None:
    """Submits a procedure whose message needs ids that are reserved."""
    term, process = world.term, world.active
    if term is None or process is None or not process.alive or too_low(world, term, kind):
        return

    async def submitted() -> None:
        try:
            await term.engine.submit(kind, await data(term), Caller("User:ops"))
        except (ProcedureRefused, StoreFailed):
            world.counts["refused"] += 1

    process.start(submitted())


def _rows(world: SimulatedRegions) -> list[RegionRow]:
    return sorted(world.disk.regions.values(), key=lambda row: (row.table, row.start))


def _row(world: SimulatedRegions, number: str) -> RegionRow | None:
    """Returns the row of a region by a number that is drawn, or the first one of a table; None where there is none."""
    rows = _rows(world)
    if not number.isdecimal():
        return next((row for row in rows if row.table == number), None)
    return rows[int(number) % len(rows)] if rows else None


@verb
def split_(world: SimulatedRegions, number: str, key: str) -> None:
    """Splits a region, at one of the clients' keys, or at the one that its server names."""
    row, term = _row(world, number), world.term
    if row is None or term is None:
        return
    region = term.env.model.regions.get(row.id)
    inside = [one for one in KEYS if row.start < one and (not row.end or one < row.end)]
    if region is not None:
        at = b"" if key == "-" or not inside else inside[int(key) % len(inside)]
        _asks(world, split.NAME, lambda now: split.splitting(now.env, region, at, "operator"))


@verb
def merge_(world: SimulatedRegions, number: str, count: str) -> None:
    """Merges neighbours, or (``count`` "apart") asks for the merge of two that are none."""
    rows, term = _rows(world), world.term
    if not rows or term is None:
        return
    first = int(number) % len(rows)
    wanted = rows[first : first + 3 : 2] if count == "apart" else rows[first : first + int(count)]
    some = [term.env.model.regions.get(row.id) for row in wanted]
    found = [one for one in some if one is not None and one.table.name == rows[first].table]
    if len(found) > 1:
        _asks(world, merge.NAME, lambda now: merge.merging(now.env, found, "operator"))


def _table(world: SimulatedRegions, number: str, state: TableState) -> str | None:
    """Returns the name of a table in a state, or of any other; None where there is none. A name stays as it is."""
    if not number.isdecimal():
        return number
    all_ = sorted(world.disk.tables.values())
    some = [row for row in all_ if row.state == state] or all_
    return some[int(number) % len(some)].name if some else None


def _snapshot(world: SimulatedRegions, number: str) -> str | None:
    some = sorted(one.name for one in world.disk.small.values() if isinstance(one, SnapshotRow))
    return some[int(number) % len(some)] if some else None


@verb
def truncate(world: SimulatedRegions, number: str, how: str) -> None:
    """Truncates a table, and enables it then."""
    if (name := _table(world, number, TableState.DISABLED)) is not None:
        task = TableTask(name, enables=True, drops_splits=how == "one")
        submit(world, tables.TRUNCATE, TABLE_TASK.encode(task))


@verb
def modify(world: SimulatedRegions, name: str, value: str) -> None:
    """Changes an option of a table."""
    submit(world, modification.NAME, TABLE_TASK.encode(TableTask(name, options={"color": value}, together=2)))


@verb
def flush(world: SimulatedRegions, name: str) -> None:
    """Has all regions of a table flushed."""
    submit(world, table_work.NAME, TABLE_WORK.encode(TableWork(name, FLUSH)))


@verb
def snapshot(world: SimulatedRegions, name: str, number: str) -> None:
    """Makes a snapshot of a table."""
    if (table := _table(world, number, TableState.ENABLED)) is not None:
        submit(world, snapshots.MAKE, SNAPSHOT_TASK.encode(SnapshotTask(name, table)))


@verb
def forget_snapshot(world: SimulatedRegions, name: str) -> None:
    """Deletes a snapshot: one that regions need, where there is one."""
    heirs = [one for one in world.disk.small.values() if isinstance(one, HeirRow)]
    needed = sorted({name_in(source.snapshot) for heir in heirs for source in heir.sources if source.snapshot})
    name = name if name in needed or not needed else needed[0]
    submit(world, snapshots.DELETE, SNAPSHOT_TASK.encode(SnapshotTask(name)))


@verb
def clone(world: SimulatedRegions, name: str, made_of: str, number: str) -> None:
    """Makes a table that begins as another one, or as a snapshot."""
    made_of_table = made_of == "table"
    source = _table(world, number, TableState.DISABLED) if made_of_table else _snapshot(world, number)
    if source is not None:
        found = TableTask(name, source=source) if made_of_table else TableTask(name, snapshot=source)
        submit(world, tables.CLONE, TABLE_TASK.encode(found))


@verb
def restore_snapshot(world: SimulatedRegions, number: str, snapshot: str) -> None:
    """Has a table begin anew as a snapshot, and enables it then."""
    table, name = _table(world, number, TableState.DISABLED), _snapshot(world, snapshot)
    if table is not None and name is not None:
        submit(world, tables.RESTORE, TABLE_TASK.encode(TableTask(table, snapshot=name, enables=True)))


@verb
def abort_split(world: SimulatedRegions, number: str) -> None:
    """Has a procedure undone that changes the shape of a table."""
    term = world.term
    if term is None:
        return
    some = sorted((one for one in term.engine.live() if one.kind in SHAPING), key=lambda one: one.pid)
    if some:
        end(world, term, some[int(number) % len(some)], term.engine.abort)


@verb
def drop_independent(world: SimulatedRegions, name: str, late_s: str) -> None:
    """Has a server say late that regions are independent: after they were closed, or opened again."""
    world.servers[name].late_s = float(late_s)


@verb
def late_words(world: SimulatedRegions, late_s: str) -> None:
    """Has all servers say late that regions are independent."""
    for server in world.servers.values():
        server.late_s = float(late_s)


@verb
def reopen_heirs(world: SimulatedRegions, name: str) -> None:
    """Closes the regions of a table that refer to others, and opens them where they were."""
    for row in _rows(world):
        if row.table == name and (HeirRow, (row.id,)) in world.disk.small:
            submit(world, move.NAME, MOVE.encode(Move(row.id, name, "", "operator", reopens=True)))


def heal(world: SimulatedRegions) -> None:
    """Has servers say at once that regions are independent."""
    for server in world.servers.values():
        server.late_s = 0.0
