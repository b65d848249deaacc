"""Builds the model of a term from the catalog and the procedure records, before anything is served or run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from controller.regions.environment import RegionsEnv
from controller.regions.kinds import assign, close, crash, servers
from controller.regions.kinds.messages import CRASH, TRANSIT, Crash, Transit
from metadata_store.catalog.rows import Content
from state_machines.procedures.record import Record
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.model import Region, Regions, Server, Table
from state_machines.regions.states import IN_TRANSITION, RegionState, ServerState, TableKind, TableState

S = RegionState

ROWS_TOGETHER: Final = 2_000
"""Rows that are entered in one go: the loop has other work, too."""


async def enter(model: Regions, content: Content, now_ms: int) -> None:
    """Enters what the catalog holds. Leases of servers begin later, once everything is loaded."""
    model.namespaces.update(content.namespaces, ("default",))
    model.buried.update(content.buried)
    for mark in content.marks:
        if mark.kind in set(MarkKind):
            model.marks.put(Mark(MarkKind(mark.kind), *mark[1:]))
    for row in content.servers:
        server = Server(*row, ServerState.ONLINE, {})
        model.servers[server.key] = server
    for table in content.tables:
        model.add_table(Table(table.name, TableKind(table.kind), TableState(table.state), dict(table.options), []))
    for number, one in enumerate(content.regions):
        if number % ROWS_TOGETHER == 0:
            await asyncio.sleep(0)
        table_ = model.tables[one.table]
        owner = model.servers.get((one.server, one.incarnation)) if one.server else None
        region = Region(one.id, table_, one.start, one.end, S(one.state), owner, one.token, one.sequence, 0, now_ms)
        region.doubtful = True
        if region.state is S.OPEN and owner is None:
            region.state = S.ABNORMALLY_CLOSED
        if owner is not None:
            owner.regions[region.id] = region
        model.regions[region.id] = region
        table_.regions.append(region)


def resume(env: RegionsEnv, records: Iterable[Record]) -> None:
    """Enters what live procedures were about: regions in transition, and servers that crashed.

    Of several procedures for a region the one that is dispatched is attached; the others wait for its lock.
    """
    for record in sorted(records, key=lambda one: (-one.step, one.pid)):
        if record.kind in (assign.NAME, close.NAME):
            task: Transit = TRANSIT.decode(record.data)
            region = env.model.regions.get(task.region)
            if region is None or region.pid:
                continue
            if record.step == assign.DISPATCH:
                _resume(env, record, region, task)
            elif record.locked:
                env.model.attach(region, record.pid)
        elif record.kind == crash.NAME:
            crashed: Crash = CRASH.decode(record.data)
            server = env.model.servers.get((crashed.server, crashed.incarnation))
            if server is not None:
                server.state = ServerState.FENCED if record.step >= crash.ASSIGN else ServerState.CRASHED
                env.crashing.add(server.key)
        elif record.kind == servers.DRAIN:
            drained: Crash = CRASH.decode(record.data)
            server = env.model.servers.get((drained.server, drained.incarnation))
            if server is not None:
                server.leaving = True
                server.forced |= drained.force
    env.unheard.begin(key for key, one in env.model.servers.items() if one.state is not ServerState.FENCED)


def _resume(env: RegionsEnv, record: Record, region: Region, task: Transit) -> None:
    server = env.model.servers.get((task.server, task.incarnation))
    env.model.attach(region, record.pid)
    region.doubtful = False
    if region.server is not server:
        if region.server is not None:
            region.server.regions.pop(region.id, None)
        region.server = server
        if server is not None:
            server.regions[region.id] = region
    if record.kind == assign.NAME:
        region.state, region.opening = S.OPENING, assign.token_of(record, task)
    else:
        region.state = S.CLOSING


async def lost(model: Regions) -> list[Region]:
    """Returns regions that ought to be open, and that no procedure and no server has."""
    found: list[Region] = []
    for number, one in enumerate(list(model.regions.values())):
        if number % ROWS_TOGETHER == 0:
            await asyncio.sleep(0)
        if not one.pid and (one.state in IN_TRANSITION or (one.state is S.OFFLINE and _is_wanted(one))):
            found.append(one)
    return found


def _is_wanted(region: Region) -> bool:
    return region.table.state is TableState.ENABLED
