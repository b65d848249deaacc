"""Has the model of a new term know what its records are about, before anything is served; takes it apart later."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from controller.regions import bypassed, damaged
from controller.regions.endings import Left
from controller.regions.entering import ROWS_TOGETHER
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import (
    assign,
    close,
    crash,
    forgetting,
    merge,
    move,
    region_work,
    reshaping,
    servers,
    split,
    tables,
)
from controller.regions.procedures.messages import (
    CRASH,
    MOVE,
    REGION_WORK,
    SHAPE,
    TRANSIT,
    Crash,
    Move,
    RegionWork,
    Shape,
    Transit,
)
from controller.regions.procedures.repair import REPAIR, Repair
from state_machines.procedures.record import Record
from state_machines.procedures.recovery import together
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState

S = RegionState

_PLACES: Final = {region_work.NAME: 1, move.NAME: 1, forgetting.NAME: 1, split.NAME: 2, merge.NAME: 2}


@contextmanager
def no_collections() -> Iterator[None]:
    """Keeps the garbage collector from running: while a million rows are read, it takes longer than the reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def resume(env: RegionsEnv, records: Iterable[Record], park: Callable[[int, Exception], None]) -> None:
    """Enters what live procedures were about: regions in transition, and servers that crashed; pauses between portions.

    Of several procedures for a region the one that is dispatched is attached; the others wait for its lock. ``park``:
    takes a procedure that the model does not, so that one record ends no term.
    """
    for some in together(sorted(records, key=_order)):
        for record in some:
            try:
                _resume_one(env, record)
            except Exception as error:
                park(record.pid, error)
        await asyncio.sleep(0)
    env.claimants.begin(key for key, one in env.model.servers.items() if one.state is not ServerState.FENCED)


def _order(record: Record) -> tuple[int, int, int]:
    """Returns the place of a record: dispatched ones first, and what has parts behind them."""
    return _PLACES.get(record.kind, 0), -record.step, record.pid


def _resume_one(env: RegionsEnv, record: Record) -> None:
    if record.kind in (assign.NAME, close.NAME):
        _resume_transit(env, record)
    elif record.kind == move.NAME:
        _resume_move(env, record)
    elif record.kind == region_work.NAME:
        _resume_work(env, record)
    elif record.kind == forgetting.NAME:
        _resume_forgotten(env, record)
    elif record.kind in reshaping.LEAVING:
        _resume_shape(env, record)
    elif record.kind in (crash.NAME, servers.DRAIN):
        _resume_process(env, record)
    elif record.kind in tables.NAMES:
        bypassed.table_changed(env, record)


def _resume_transit(env: RegionsEnv, record: Record) -> None:
    task: Transit = TRANSIT.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None or region.pid:
        return
    region.opening = max(region.opening, task.token)
    if task.failed:
        env.causes.noted(record.pid, region.id, task.failed)
    if record.step == assign.DISPATCH:
        _resume(env, record, region, task)
    elif record.locked:
        env.model.attach(region, record.pid)


def _resume_move(env: RegionsEnv, record: Record) -> None:
    """Attaches a move between its parts: no other procedure is to pick the region up."""
    task: Move = MOVE.decode(record.data)
    region = env.model.regions.get(task.region)
    if record.locked and region is not None and not region.pid:
        env.model.attach(region, record.pid)


def _resume_work(env: RegionsEnv, record: Record) -> None:
    """Has the region stay with its work: a crash of its server leaves it to that."""
    task: RegionWork = REGION_WORK.decode(record.data)
    region = env.model.regions.get(task.region)
    if record.locked and region is not None and not region.pid:
        env.model.hold(region, record.pid)


def _resume_forgotten(env: RegionsEnv, record: Record) -> None:
    """Attaches a procedure that forgets a region, between its parts: nothing opens it beside its removal."""
    task: Repair = REPAIR.decode(record.data)
    region = env.model.regions.get(task.region)
    if record.locked and region is not None and not region.pid:
        env.model.attach(region, record.pid)


def _resume_shape(env: RegionsEnv, record: Record) -> None:
    """Attaches a split or a merge to its regions between its parts, and to the heirs once they have the keys."""
    if not record.locked:
        return
    task: Shape = SHAPE.decode(record.data)
    leaves = task.server and record.state is not State.FAILED
    for id_ in (*task.parents, *task.heirs):
        region = env.model.regions.get(id_)
        if region is None or region.pid:
            continue
        env.model.attach(region, record.pid)
        if leaves and region.state is S.OPEN and id_ in task.parents:
            env.model.restate(region, reshaping.LEAVING[record.kind])


def _resume_process(env: RegionsEnv, record: Record) -> None:
    task: Crash = CRASH.decode(record.data)
    server = env.model.servers.get((task.server, task.incarnation))
    if server is None:
        return
    if record.kind == crash.NAME:
        server.state = ServerState.FENCED if record.step >= crash.ASSIGN else ServerState.CRASHED
        env.crashing.add(server.key)
        env.left_out[server.key] = task.lost
    elif not record.aborted:
        server.leaving = True
        server.forced |= task.force
        bypassed.drain_changed(env, record)


def distrust(env: RegionsEnv, records: Iterable[Record]) -> None:
    """Enters that processes crashed whose crash was bypassed, or has a record that cannot be used.

    They may have been fenced in part. The next check of leases begins their crashes anew, without the parts of their
    logs that were left out. Where such a record may have moved regions, a live record says no more where they are.
    """
    if env.torn:
        for region in env.model.transit.values():
            region.doubtful = True
    for record in records:
        if record.kind != crash.NAME or (record.state.is_final and not record.bypassed):
            continue
        try:
            task: Crash = CRASH.decode(record.data)
        except msgspec.DecodeError:
            continue
        server = env.model.servers.get((task.server, task.incarnation))
        if server is not None and server.key not in env.crashing:
            server.state = ServerState.CRASHED
            env.keep_lost(server.key, task.lost)


def _resume(env: RegionsEnv, record: Record, region: Region, task: Transit) -> None:
    key = task.server, task.incarnation
    server = env.model.servers.get(key) or damaged.unnamed(env.model, key, f"procedure {record.pid}")
    env.model.attach(region, record.pid)
    region.doubtful = env.restored
    if env.restored and record.kind == assign.NAME:
        env.outdated.add(record.pid)
    if region.server is not server:
        if region.server is not None:
            region.server.regions.pop(region.id, None)
        region.server = server
        if server is not None:
            server.regions[region.id] = region
    if record.kind == assign.NAME:
        env.model.restate(region, S.OPENING)
        region.opening, region.clean = assign.token_of(record, task), False
    else:
        env.model.restate(region, S.CLOSING)


async def unload(model: Regions) -> None:
    """Takes the model of an ended term apart: its parts keep each other, which the garbage collector does not see."""
    model.transit.clear()
    model.held.clear()
    for table in model.tables.values():
        table.clear()
    for server in model.servers.values():
        server.regions.clear()
    while model.regions:
        for _ in range(min(ROWS_TOGETHER, len(model.regions))):
            model.regions.popitem()
        await asyncio.sleep(0)


async def lost(model: Regions) -> list[Left]:
    """Returns regions that no procedure moves, and that need one."""
    found: list[Left] = []
    regions = list(model.regions.values())
    for at in range(0, len(regions), ROWS_TOGETHER):
        found += bypassed.lost(regions[at : at + ROWS_TOGETHER])
        await asyncio.sleep(0)
    return found
