"""Forget a region: what the catalog has of it, and what cannot be right, is removed; the service keeps its own data.

It removes a region whose keys others have, once a server has closed it; or a row that refers to a lost region, or that
cannot be read. The request says which of these it is, and each step judges it again.

It has the region from its first step on, also while a part of it closes the region, so that no other procedure opens
the region beside its removal: batches take regions before they lock them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.endings import Left
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import adopting, close, repair
from controller.regions.procedures.repair import REPAIR, Repair
from metadata_store.catalog.rows import Drop, DropRegions, HeirRow, ParentRow, Put, Write
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Yield
from state_machines.procedures.record import Record
from state_machines.regions.damage import Gap, RowKind
from state_machines.regions.entities import Region
from state_machines.regions.findings import Refusal
from state_machines.regions.keys import Without
from state_machines.regions.misnamed import heirs_without_sources, may_leave_hole
from state_machines.regions.repairs import Forgotten, alone, forgettable
from state_machines.regions.states import RegionState

NAME: Final = "forget_region"
FREE: Final = 0
REMOVE: Final = 1
TELL: Final = 2
"""Point of no return: the record of a region that others cover has this step from its removal on."""
TAKEN_MS_MAX: Final = 10_000
"""Time from the request on in which a region is awaited that another procedure has taken, and not locked yet."""
COPIED: Final = "the store was restored from a copy, and the catalog may have been right since: begin it again"


def problem_of(env: RegionsEnv, record: Record, task: Repair) -> str | None:
    """Returns why the catalog does not forget a region now; None where it does."""
    found = forgettable(env.model, task.region)
    if isinstance(found, Refusal):
        return str(found)
    if found != task.what or (task.table and table_of(env, task.region) != task.table):
        return f"what the catalog has of region {task.region} is another thing by now: see 'regent regions report'"
    return COPIED if record.pid <= env.copied_number else None


def table_of(env: RegionsEnv, id_: int) -> str:
    """Returns the name of the table of a region; empty where no row has it."""
    model = env.model
    if (region := model.regions.get(id_)) is not None:
        return region.table.name
    if damages := model.damages.of_id(id_):
        return next((one.table for one in damages if one.table), "")
    return model.parents[id_].table if id_ in model.parents else ""


async def others_of(env: RegionsEnv, region: Region) -> Without:
    """Follows the keys of a table without one of its regions; other work goes on while it looks."""
    others = Without(region.table, region)
    for _ in others.parts():
        await asyncio.sleep(0)
    return others


def uncovered(others: Without, region: Region, *, leaves_hole: bool = False) -> Refusal | None:
    """Returns why a region is needed: no other one has some of its keys; None where others have all.

    ``leaves_hole``: the keys may have no region then, unless it is open.
    """
    missing = others.missing
    if missing is None:
        return None
    return may_leave_hole(region) if leaves_hole else alone(region, (missing.start, missing.end))


class Judged(NamedTuple):
    """What is to be forgotten: a region that the procedure has, with the others of its table, or rows without one."""

    region: Region | None
    others: Without | None


async def judged(env: RegionsEnv, record: Record, task: Repair) -> Judged | Failed | Yield:
    """Takes the region, and judges it; returns what comes instead where another procedure has it, or it stays."""
    region = env.model.regions.get(task.region)
    if region is not None and (instead := _with_another(env, record, region)) is not None:
        return instead
    others = None if region is None else await others_of(env, region)
    if (why := _refusal(env, record, task, region, others)) is not None:
        return Failed(f"{NAME}: {why}")
    if region is not None and (instead := _with_another(env, record, region)) is not None:  # behind the await
        return instead
    return Judged(region, others)


def _with_another(env: RegionsEnv, record: Record, region: Region) -> Failed | Yield | None:
    """Takes a region; returns what comes instead where another procedure has it.

    That one waits for the lock, or is about to. It gets that where this procedure has not kept it yet, which goes on
    later; else it would wait for ever, so this one ends.
    """
    if env.model.take(region, record.pid):
        return None
    if record.locked or env.wall_ms() - record.submitted_ms > TAKEN_MS_MAX:
        ends = f"wait for its end, or 'regent regions procedures bypass {region.pid}' ends it; then begin it again"
        return Failed(f"{NAME}: procedure {region.pid} has region {region}: {ends}")
    return Yield()


async def free(env: RegionsEnv, record: Record) -> Outcome:
    """Has a region closed whose keys others have, or one whose row is left out, wherever a process has it."""
    task: Repair = REPAIR.decode(record.data)
    found = await judged(env, record, task)
    if not isinstance(found, Judged):
        return found
    if task.what == Forgotten.DAMAGED:
        return adopting.unserved(env, record, task) or Next(REMOVE, record.data)
    region = found.region
    if region is None or _is_free(env, region):
        return Next(REMOVE, record.data)
    if region.server is None:
        return adopting.held(env, record)
    return Children((close.closed(region, task.why, stays=True),), record.step, record.data)


def _is_free(env: RegionsEnv, region: Region) -> bool:
    """Checks whether no process can have a region."""
    return region.server is None and not env.claimants.is_held(region)


def _refusal(
    env: RegionsEnv, record: Record, task: Repair, region: Region | None, others: Without | None
) -> str | None:
    """Returns why a region is not forgotten, behind an await: the model may be different by now."""
    if env.model.regions.get(task.region) is not region:
        return "its region has changed meanwhile: begin it again"
    if (why := problem_of(env, record, task)) is not None or region is None or others is None:
        return why
    refusal = uncovered(others, region, leaves_hole=task.leaves_hole)
    return None if refusal is None else str(refusal)


async def remove(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the rows in one write; goes back where a process may have the region again."""
    task: Repair = REPAIR.decode(record.data)
    found = await judged(env, record, task)
    if not isinstance(found, Judged):
        return found
    region, others = found
    if region is not None and others is not None:
        if not _is_free(env, region):
            return Next(FREE, record.data)
        gaps = others.gaps
        rows = (DropRegions((region.id,)),)
        return Effect(Next(TELL, record.data), rows, lambda _: _forgotten(env, record, region, gaps))
    if task.what == Forgotten.DAMAGED and adopting.waits_for(env, task.region):
        return Next(FREE, record.data)
    heirs = heirs_without_sources(env.model, task.region) if task.what == Forgotten.SOURCES else []
    if (instead := _taken(env, record, heirs)) is not None:
        return instead
    return Effect(Done(), _rows(env, task, heirs), lambda _: _without_rows(env, record, task, heirs))


def _taken(env: RegionsEnv, record: Record, heirs: Sequence[Region]) -> Failed | Yield | None:
    """Takes the regions that get the row of a lost one; returns what comes instead where another procedure has one."""
    for at, one in enumerate(heirs):
        if (instead := _with_another(env, record, one)) is not None:
            for other in heirs[:at]:
                env.model.detach(other, record.pid)
            return instead
    return None


def _forgotten(env: RegionsEnv, record: Record, region: Region, gaps: list[Gap]) -> None:
    """Enters that a region is gone. Regions that shared keys with it get routes again in the next step."""
    model, table = env.model, region.table
    env.journal.forgotten(region.id, table.name, region.state.name, record.pid)
    model.detach(region, record.pid)
    model.drop(region)
    region.state = RegionState.MERGED  # for clients, who forget it: others have its keys
    model.damages.put_gaps(table.name, gaps)
    env.routes.changed(region)


def _rows(env: RegionsEnv, task: Repair, heirs: Sequence[Region]) -> tuple[Write, ...]:
    """Returns the writes that remove rows about a region that is not there. ``heirs`` get what it refers to."""
    id_ = task.region
    match Forgotten(task.what):
        case Forgotten.PARENT:
            return (Drop(ParentRow, (id_,)),)
        case Forgotten.SOURCES:
            given = (Put(HeirRow(one.id, tuple(env.model.sources[id_]))) for one in heirs)
            return (Drop(HeirRow, (id_,)), *given)
    kinds = {one.kind for one in env.model.damages.of_id(id_)}
    found: list[Write] = [DropRegions((id_,))] if id_ in env.model.damages.regions else []
    found += [Drop(HeirRow, (id_,))] if RowKind.HEIR in kinds and not found else []
    found += [Drop(ParentRow, (id_,))] if RowKind.PARENT in kinds else []
    return tuple(found)


def _without_rows(env: RegionsEnv, record: Record, task: Repair, heirs: Sequence[Region]) -> None:
    model, id_ = env.model, task.region
    for one in heirs:
        model.sources[one.id] = model.sources[id_]
        model.detach(one, record.pid)
    parent = model.parents.get(id_)
    known = RegionState(parent.state).name if parent is not None and task.what == Forgotten.PARENT else ""
    env.journal.forgotten(id_, task.table, known, record.pid)
    if task.what == Forgotten.PARENT:
        model.parents.pop(id_, None)
        env.parents_ms.pop(id_, None)
        return
    if task.what == Forgotten.SOURCES or id_ in model.damages.regions:
        model.sources.pop(id_, None)
    model.damages.drop_region(id_)


async def tell(env: RegionsEnv, record: Record) -> Outcome:
    """Tells clients the routes to keys again that the region shared with others; a next term has nothing to tell."""
    for some in env.model.damages.settled(REPAIR.decode(record.data).table):
        for id_ in some:
            if (other := env.model.regions.get(id_)) is not None:
                env.routes.changed(other)
        await asyncio.sleep(0)
    return Done()


async def leave(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Lets go the region, and heirs that were to get its row: each stays, and is picked up where it is on its way."""
    model, id_ = env.model, REPAIR.decode(record.data).region
    some = [model.regions.get(id_), *heirs_without_sources(model, id_)]

    def entered(_: Change) -> None:
        for region in some:
            if region is not None and region.pid == record.pid:
                model.detach(region, record.pid)
                env.left.append(Left(region, record.pid, undone=True))

    return Effect(Done(), (), entered)


FORGET_REGION: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("free", free, leave), Step("remove", remove, leave), Step("tell", tell)),
    repair.lock_of_repair,
    no_return=TELL,
    holds_locks=True,
    members=repair.of_repair,
)
