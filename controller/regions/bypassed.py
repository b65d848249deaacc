"""Sees to what operators have ended: the assigns of a table, and what a procedure was about that ended as it is.

A region goes on as after a failover: see :mod:`state_machines.regions.transit`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from controller.regions.endings import Left
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, crash, move, region_work, servers, tables
from controller.regions.procedures.messages import CRASH, MOVE, REGION_WORK, TRANSIT, Crash, Move, RegionWork, Transit
from state_machines.procedures.record import REMOVED, Record
from state_machines.procedures.transition import Transition
from state_machines.regions import marks
from state_machines.regions.entities import Region
from state_machines.regions.marks import LostParts
from state_machines.regions.states import RegionState, ServerState
from state_machines.regions.transit import Way, way_of

log = logging.getLogger("regent.regions")

OF_REGIONS: Final[dict[str, Any]] = {
    assign.NAME: TRANSIT,
    close.NAME: TRANSIT,
    move.NAME: MOVE,
    region_work.NAME: REGION_WORK,
}
"""Kinds of procedures that have one region, with their messages."""
REGIONS_TOLD: Final = 20
"""Regions in a line of the log."""


def see_to(env: RegionsEnv, moved: Sequence[Transition]) -> None:
    """Takes durable changes of procedures.

    A record that was removed is left out: this term never ran it, and its message may be no such.
    """
    for _, record in moved:
        if (record.kind in OF_REGIONS and not record.bypassed) or record.ending.act == REMOVED:
            continue  # nearly all
        if record.kind in tables.NAMES:
            table_changed(env, record)
        elif record.kind == crash.NAME and not record.state.is_final:
            crash_changed(env, record)
        elif record.kind == servers.DRAIN:
            drain_changed(env, record)
        if record.bypassed and record.state.is_final:
            _detach(env, record)


def table_changed(env: RegionsEnv, record: Record) -> None:
    """Has the assigns of a table end, from the moment at which a procedure wants that to its end."""
    if record.state.is_final:
        env.left.extend(Left(one, record.pid) for one in env.endings.over(record.pid))
    elif (ending := tables.ending_of(record)) is not None and env.endings.begin(ending):
        table = env.model.tables.get(ending.table)
        if table is not None:
            env.waking.add(table.transit)


def drain_changed(env: RegionsEnv, record: Record) -> None:
    """Notes which processes are drained. An abort of a drain gives its process regions again, before its moves end."""
    task: Crash = CRASH.decode(record.data)
    key = task.server, task.incarnation
    if not record.state.is_final and not record.aborted:
        env.draining[record.pid] = key
    elif env.draining.pop(record.pid, None) is not None and not record.state.is_final:
        servers.stays(env, key, record.pid)


def crash_changed(env: RegionsEnv, record: Record) -> None:
    """Notes the parts of a log that operators have left out, and has the work on them end."""
    task: Crash = CRASH.decode(record.data)
    key = task.server, task.incarnation
    found = marks.latest(task.lost, env.left_out.get(key, LostParts()))
    env.keep_lost(key, task.lost)
    if found is None:
        return
    log.warning(
        "pid=%d crash: part %r of the log of server %s,%d is left out at the request of %s (%s): edits in it are not "
        "recovered for its %d regions, the first are %s; look at their data, the journal keeps this",
        *(record.pid, found.parts[-1].name, *key, found.by, found.reason, task.lost.regions),
        list(task.lost.ids[:REGIONS_TOLD]),
    )
    env.wake_unplaced()


def _detach(env: RegionsEnv, record: Record) -> None:
    """Detaches a procedure that an operator has ended as it is; its region is picked up.

    A crash begins anew: its regions would have no owner, and its process could come back to them.
    """
    env.expected(record.pid)
    env.dispatcher.forget(record.pid)
    env.results.used(record.pid)
    env.unplaced.discard(record.pid)
    env.claimants.held.discard(record.pid)
    for region in _regions_of(env, record):
        env.model.detach(region, record.pid)
        if env.endings.leaves(record, region.id):
            env.left.append(Left(region, record.pid, record.kind == assign.NAME))
            if record.kind == assign.NAME and region.state is RegionState.OPENING and region.server is not None:
                env.given_up.noted(region.id, region.server.name, env.now_ms())
            _tell(region, record)
    env.endings.ended(record)
    if record.kind == crash.NAME:
        _again(env, CRASH.decode(record.data))
    elif record.kind == servers.DRAIN:
        drained: Crash = CRASH.decode(record.data)
        servers.stays(env, (drained.server, drained.incarnation))
    elif record.kind == servers.STRAY:
        task: Transit = TRANSIT.decode(record.data)
        if (server := env.model.servers.get((task.server, task.incarnation))) is not None:
            env.dispatcher.list_regions(server)


def _regions_of(env: RegionsEnv, record: Record) -> list[Region]:
    """Returns the regions to which a procedure is attached, and the one that its message names."""
    codec = OF_REGIONS.get(record.kind)
    if codec is None:
        return [one for one in env.model.transit.values() if one.pid == record.pid]
    task: Transit | Move | RegionWork = codec.decode(record.data)
    region = env.model.regions.get(task.region)
    return [region] if region is not None and region.pid in (0, record.pid) else []


def _tell(region: Region, record: Record) -> None:
    principal = record.ending.principal or "an operator"
    log.warning(
        "pid=%d %s: region=%s is %s, server=%s, and %s has ended this procedure as it is (%s): %s",
        *(record.pid, record.kind, region, region.state.name, region.server or "none", principal),
        record.ending.reason or "no reason",
        "a server that may have it closes it; then 'regent regions assign' opens it"
        if record.kind == assign.NAME
        else "a server that may have it closes it; then it is opened where its table is enabled",
    )


def _again(env: RegionsEnv, task: Crash) -> None:
    """Has the next check of leases begin a crash anew, without the parts of the log that were left out."""
    server = env.model.servers.get((task.server, task.incarnation))
    if server is not None:
        server.state = ServerState.CRASHED
        env.crashing.discard(server.key)
        env.keep_lost(server.key, task.lost)


# -- regions that no procedure moves


def picked_up(env: RegionsEnv, left: Left) -> tuple[str, bytes] | None:
    """Returns the kind and the message of the procedure that picks a region up; None where it needs none by now."""
    region = left.region
    if region.pid or env.model.regions.get(region.id) is not region:
        return None
    found = _way(region, given_up=left.given_up)
    ended = "was undone" if left.undone else "was ended as it is"
    why = f"procedure {left.pid} {ended}" if left.pid else "no server and no procedure had it"
    task = TRANSIT.encode(Transit(region.id, region.table.name, why, to=left.to))
    match found:
        case Way.ASSIGN:
            return assign.NAME, task
        case Way.CLOSE:
            return close.NAME, task
        case _:
            return None


def lost(regions: Iterable[Region]) -> Iterator[Left]:
    """Yields the regions that a failover finds without a procedure, and that need one."""
    for one in regions:
        if one.state is not RegionState.OPEN and not one.pid and _way(one) in (Way.ASSIGN, Way.CLOSE):
            yield Left(one)


def _way(region: Region, *, given_up: bool = False) -> Way:
    owner = None if region.server is None else region.server.state
    return way_of(region.state, owner, region.table.state, given_up=given_up)
