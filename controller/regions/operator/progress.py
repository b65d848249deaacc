"""Words how far a procedure of regions is: what it waits for, which locks others hold, and what fails of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from controller.http.procedures import Procedure
from controller.procedures.engine import Engine
from controller.procedures.running import LockItem
from controller.process.wording import counted, named
from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import age_ms, wait_of
from controller.regions.operator.counts import waiting_of_tables
from controller.regions.operator.explain import without_inherit, without_servers
from controller.regions.operator.published import waits_of
from controller.regions.operator.records import message_of
from controller.regions.operator.ways import failures_of
from controller.regions.procedures import adopting, by_ids, fixing, modification, tables
from controller.regions.procedures.by_ids import ByIds
from controller.regions.procedures.log_task import FENCE_LOG, SPLIT_LOG
from controller.regions.procedures.messages import (
    Crash,
    LogTask,
    Many,
    Move,
    RegionWork,
    Shape,
    SnapshotTask,
    TableTask,
    Transit,
)
from controller.regions.procedures.publish import PublishTask
from controller.regions.procedures.repair import Repair
from controller.regions.procedures.servers import DRAIN
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.procedures.record import Record
from state_machines.regions.changes import is_outdated
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import IN_TRANSITION, RegionState, TableState

FAILURES_MAX: Final = 2_000
"""Failed attempts that one look counts."""
LOOKED_MAX: Final = 20_000
"""Regions in transition at which one look whether a procedure hangs looks."""
PARTS_SHOWN: Final = 3
HOLDERS_SHOWN: Final = 3
"""Procedures with the lock that one sentence names."""
LOGS: Final = frozenset({FENCE_LOG.name, SPLIT_LOG.name})
S = RegionState


def progress_of(record: Record, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Returns how far a procedure is; empty where nothing is known, or it has ended."""
    if record.state.is_final:
        return ""
    behind = waits_behind(record, locks_beside(record, engine), engine)
    waits = (aborting(record, engine), behind, _of_message(record, env, engine))
    return "; ".join(filter(None, waits))


def aborting(record: Record, engine: Engine[RegionsEnv]) -> str:
    """Says that a procedure is being undone, and what it waits for; empty where no operator requested that."""
    if not record.aborted or record.state.is_final:
        return ""
    parts = [one for one in engine.live() if one.parent == record.pid]
    if not parts:
        return "it is being undone"
    names = named((f"{one.pid} ({one.kind})" for one in parts), PARTS_SHOWN)
    return f"it is being undone: it begins nothing more, and ends after its parts {names}, which go on"


def _of_message(record: Record, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    match message_of(record):
        case TableTask(name) as task:
            return _of_change(record, task, env) + _failures(env, lambda one: one.table.name == name)
        case Crash(server, incarnation):
            found = env.model.servers.get((server, incarnation))
            if found is None:
                return ""
            if record.kind == DRAIN:
                return _of_server(found, env) + _nowhere(found, env) + _awaited(record, found, env, engine)
            return "; ".join((_of_server(found, env), *failures_of(found.key, engine)))
        case SnapshotTask(name, table_name, begun=begun) if table := env.model.tables.get(table_name):
            left = sum(one.parent == record.pid for one in engine.live())
            return f"{begun - left:,} of {counted(len(table.regions), 'region')} staged for snapshot {name}"
        case RegionWork(region, what=what):
            at = None if (one := env.model.regions.get(region)) is None else one.server
            return f"it waits until {at or 'a server'} has done {what!r}"
        case PublishTask() as task:
            return waits_of(record, task, env)
        case Transit(region) | Move(region):
            one = env.model.regions.get(region)
            return "" if one is None else f"{one.state.name}, waits until {wait_of(one, env).what}{_cause(one, env)}"
        case Shape():
            states = ", ".join(f"{one} {one.state.name}" for one in _regions_of(record, env))
            return states + _failures(env, lambda one: _is_part(one.pid, record, engine))
        case Repair() as task:
            return _of_repair(record, task, env, engine)
        case ByIds() | Many() as task:
            failures = _failures(env, lambda one: _is_part(one.pid, record, engine))
            so_far = by_ids.so_far(env, record.kind, task) if isinstance(task, ByIds) else ""
            return f"{so_far}{failures}".removeprefix("; ")
        case _:
            return ""


def hangs(record: Record, env: RegionsEnv, engine: Engine[RegionsEnv]) -> bool:
    """Checks whether a region that a procedure is about, or that it waits for, is in transition beyond a lease."""
    if record.state.is_final:
        return False
    for region in islice(_regions_of(record, env), LOOKED_MAX):
        part = engine.records.get(region.pid)
        if part is None or region.state not in IN_TRANSITION:
            continue
        if age_ms(region, part, env) > env.options.lease_ms and (_names(record) or _is_part(part.pid, record, engine)):
            return True
    return False


def _names(record: Record) -> bool:
    """Checks whether the message of a procedure names the region or the table that it is about."""
    return isinstance(message_of(record), TableTask | Transit | Move | RegionWork | Shape | Repair)


def _regions_of(record: Record, env: RegionsEnv) -> Iterable[Region]:
    """Returns regions among which those are that a procedure is about: also one that waits for their lock."""
    match message_of(record):
        case TableTask(name):
            table = env.model.tables.get(name)
            return () if table is None else table.transit.values()
        case Transit(region) | Move(region) | RegionWork(region) | Repair(region):
            found = env.model.regions.get(region)
            return () if found is None else (found,)
        case Shape(parents=parents, heirs=heirs):
            return [found for one in (*parents, *heirs) if (found := env.model.regions.get(one)) is not None]
        case _:
            return env.model.transit.values()


def _of_server(server: Server, env: RegionsEnv) -> str:
    now_ms = env.now_ms()
    rest = sum(env.cooldown.left_ms(one, now_ms) > 0 for one in server.regions)
    resting = f", {rest} of them rest after a move (regions.move_cooldown_ms)" if rest else ""
    return f"{counted(len(server.regions), 'region')} left{resting}, {server.state.name.lower()}"


def _nowhere(server: Server, env: RegionsEnv) -> str:
    """Says that a drain waits for another server, where it does."""
    if not env.servers():
        return f", {without_servers(env)}"
    heirs = sum(one in env.model.sources for one in server.regions) if env.inheriting() is None else 0
    return f", {without_inherit(f'the data of {heirs} of them')}" if heirs else ""


def _is_part(pid: int, record: Record, engine: Engine[RegionsEnv]) -> bool:
    """Checks whether a procedure is another one, or a part of it."""
    found = engine.records.get(pid)
    return found is not None and record.pid in (found.pid, *found.ancestors)


def _awaited(record: Record, server: Server, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Returns the end of a sentence: which other procedures have regions of a drained server, and what failed there."""
    others = dict.fromkeys(
        one.pid
        for one in islice(server.regions.values(), LOOKED_MAX)
        if one.pid in engine.records and not _is_part(one.pid, record, engine)
    )
    waits = ""
    if others:
        what = "procedure" if len(others) == 1 else "procedures"
        waits = f"; it waits for {what} {named(f'{pid} ({engine.records[pid].kind})' for pid in others)}"
    return waits + _failures(env, lambda one: one.server is server or _is_part(one.pid, record, engine))


def _of_repair(record: Record, task: Repair, env: RegionsEnv, engine: Engine[RegionsEnv]) -> str:
    """Says what a region waits for that is stored again, or forgotten."""
    region = env.model.regions.get(task.region)
    if region is None:
        waits = adopting.waits_for(env, task.region) if not task.made else ""
        return f"it waits: {waits}" if waits else ""
    why = "" if task.made else env.claimants.why_held(region)
    told = f"region {region} is {region.state.name}" + (f", it waits: {why}" if why else "")
    return told + _failures(env, lambda one: _is_part(one.pid, record, engine))


def _of_change(record: Record, task: TableTask, env: RegionsEnv) -> str:
    """Says how far a change of a table is."""
    table = env.model.tables.get(task.table)
    if table is not None and record.kind in _COUNTED:
        return _COUNTED[record.kind](table, task)
    if record.kind == fixing.NAME:
        return fixing.progress_text(env, record.step, task)
    return _of_table(env.model, task.table, S.CLOSED if record.kind == "disable_table" else S.OPEN)


def _of_table(model: Regions, name: str, wanted: RegionState) -> str:
    table = model.tables.get(name)
    if table is None:
        return ""
    done = table.count(wanted)
    if wanted is RegionState.OPEN:
        done -= waiting_of_tables(model)[name]
    return f"{done} of {counted(len(table.regions), 'region')} {wanted.name.lower()}"


def _replaced(table: Table, task: TableTask) -> str:
    """Says how many regions of a table that is truncated are new, or how many of these are open."""
    if table.state is not TableState.TRUNCATING:
        return f"{table.count(S.OPEN)} of {counted(len(table.regions), 'region')} open"
    if task.drops_splits:
        return f"{counted(len(table.regions), 'region')} left to make way for one"
    if task.snapshot:
        return f"{task.made:,} of {counted(task.count, 'region')} of snapshot {task.snapshot} made"
    return f"{task.made:,} of {counted(len(table.regions), 'region')} replaced"


def _reopened(table: Table, _: TableTask) -> str:
    """Says how many regions of a table have its present options."""
    left = sum(map(is_outdated, table.regions))
    return f"{len(table.regions) - left:,} of {counted(len(table.regions), 'region')} reopened"


_COUNTED: Final[Mapping[str, Callable[[Table, TableTask], str]]] = {
    tables.TRUNCATE: _replaced,
    tables.RESTORE: _replaced,
    modification.NAME: _reopened,
}
"""By kind, how far a change of a table is that does not simply open or close all of its regions."""


def _cause(region: Region, env: RegionsEnv) -> str:
    """Returns the end of a sentence: why the latest attempt on a region failed, by whatever procedure moves it."""
    cause = env.causes.of(region.pid)
    return f"; in the last attempt {cause}" if cause else ""


def _failures(env: RegionsEnv, wanted: Callable[[Region], bool]) -> str:
    """Returns the end of a sentence: on how many wanted regions attempts failed, and why the latest one did."""
    regions = env.model.regions
    found = [
        (region, one.text)
        for one in islice(env.causes.latest(), FAILURES_MAX)
        if (region := regions.get(one.region)) is not None and wanted(region)
    ]
    if not found:
        return ""
    region, text = found[0]
    return f"; attempts on {counted(len(found), 'region')} failed, the last one on {region}: {text}"


# -- locks


def locks_beside(record: Record, engine: Engine[RegionsEnv]) -> Sequence[LockItem]:
    """Returns the locks among which those are that a procedure waits for; none where it has its own already.

    There may be ten thousands of them.
    """
    return () if record.locked and not record.is_new else engine.locks()


def holders(record: Record, locks: Sequence[LockItem], engine: Engine[RegionsEnv]) -> list[int]:
    """Returns the pids that hold what a procedure waits for; without one, those that wait for it with an earlier turn.

    ``locks``: of the engine, by pid. Parts of a holder are left out. A lock above, of a namespace, is not looked at.
    """
    found: set[int] = set()
    family = {record.pid, *record.ancestors}
    for mine in (one for one in locks if one.pid == record.pid and one.waiting):
        others = [one for one in locks if one.resource == mine.resource and one.pid not in family]
        others = [one for one in others if one.pid in engine.records and _excludes(mine, one)]
        held = {one.pid for one in others if not one.waiting}
        found |= held or {one.pid for one in others if one.pid < mine.pid}
    return sorted(pid for pid in found if found.isdisjoint(engine.records[pid].ancestors))


def _excludes(one: LockItem, other: LockItem) -> bool:
    return one.exclusive or other.exclusive or not set(one.parts).isdisjoint(other.parts)


def waits_behind(record: Record, locks: Sequence[LockItem], engine: Engine[RegionsEnv]) -> str:
    """Says that a procedure waits for a lock, and which ones hold it; empty where it does not."""
    found = holders(record, locks, engine)
    if not found:
        return ""
    what = "procedure" if len(found) == 1 else "procedures"
    names = named((f"{pid} ({engine.records[pid].kind})" for pid in found), HOLDERS_SHOWN)
    return f"it waits for the lock of {what} {names}"


# -- failing parts


class Failing(NamedTuple):
    """The parts of a procedure whose latest attempts failed. ``attempts``: of the part that has most, as far as known.

    ``last``: the subject of the latest failed attempt, and why it failed.
    """

    parts: int
    attempts: int
    last: str

    def sentence(self) -> str:
        """Returns one sentence."""
        last = self.last if self.parts == 1 else f"{counted(self.parts, 'part')} fail, the last one {self.last}"
        return f"{counted(self.attempts, 'attempt')} in vain; {last}" if self.attempts else last


def failing_of(env: RegionsEnv, engine: Engine[RegionsEnv]) -> dict[int, Failing]:
    """Returns by pid what fails of the procedures that go on: of each part, and of all above it."""
    found: dict[int, Failing] = {}
    for record, attempts, last in _failed(env, engine):
        for pid in (record.pid, *record.ancestors):
            known = found.get(pid)
            if known is None:
                found[pid] = Failing(1, attempts, last)
            else:
                found[pid] = known._replace(parts=known.parts + 1, attempts=max(known.attempts, attempts))
    return found


def _failed(env: RegionsEnv, engine: Engine[RegionsEnv]) -> Iterator[tuple[Record, int, str]]:
    """Yields the parts whose latest attempt failed, with their failed attempts and the cause, the latest first."""
    for pid, cause in islice(env.causes.items(), FAILURES_MAX):
        record, region = engine.records.get(pid), env.model.regions.get(cause.region)
        if record is not None and not record.state.is_final:
            attempts = getattr(message_of(record), "retries", 0)
            yield record, attempts, f"on {region or cause.region}: {cause.text}"
    logs = (one for one in engine.live() if one.kind in LOGS)
    for record in islice(logs, FAILURES_MAX):
        task = message_of(record)
        if isinstance(task, LogTask) and task.failed:
            yield record, 0, f"on the log of {task.server},{task.incarnation}: {task.failed}"


def with_failures(item: Procedure, failing: Mapping[int, Failing]) -> Procedure:
    """Returns the item of a procedure with what fails of its parts."""
    found = failing.get(item.pid)
    if found is None or item.ended:
        return item
    attempts = max(item.attempts, found.attempts)
    update = {"attempts": attempts, "stuck": item.stuck or attempts >= STUCK_ATTEMPTS}
    return item.model_copy(update=update | ({} if item.error else {"error": found.sentence()}))
