"""Crash of a server: freeze, fence, split its log, reassign (HBase ``ServerCrashProcedure``), once per incarnation.

The process gets no regions from the moment of its crash, so its list is frozen. Until it is fenced and its log split,
no region of it goes elsewhere. From then on procedures that wait for it choose another server; regions without a
procedure are assigned in batches, those of the catalog's class first. A new process with this name is another server.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.requests import ProcedureRefused
from controller.regions import admission
from controller.regions.environment import RegionsEnv
from controller.regions.fencing import COMMAND, LEASE, LOG, NotFenced, fences_in
from controller.regions.journal.journal import CRASHED, FENCED, GONE, RELEASED
from controller.regions.procedures import log_task, many, messages
from controller.regions.procedures.messages import CRASH, LOST_PARTS, Crash
from metadata_store.catalog.rows import Bury, DropServer, Forget, Owner, Write
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record
from state_machines.regions import marks
from state_machines.regions.changes import abandoned
from state_machines.regions.entities import Region, Server
from state_machines.regions.marks import LostParts
from state_machines.regions.model import Buried
from state_machines.regions.states import RegionState, ServerState

NAME: Final = "crash"
FENCE: Final = 0
SPLIT: Final = 1
RELEASE: Final = 2
ASSIGN: Final = 3
POLL_MS: Final = 50
BATCHES_MAX: Final = 60
"""Batches that one step begins; the rest follows when they have ended."""
PARTS_TOGETHER: Final = 100
"""Parts of a log that one step has split."""
COMMAND_PAUSE_MS_MAX: Final = 60_000
"""Longest pause before a fence command that failed is run again: until then no server serves the regions."""
DATA_BYTES_MAX: Final = 128 * 1024
"""Bytes of its message with the parts that are left out: the work on the other parts is stored in one write with it."""
LEFT_OUT_TOLD_MAX: Final = 10
LEFT_OUT_CHARS_MAX: Final = 2_000
"""Parts of a log, and characters, in the result of a crash without them."""
S = RegionState


async def fence(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Waits until the process cannot write any more."""
    task: Crash = CRASH.decode(record.data)
    server = env.model.servers.get((task.server, task.incarnation))
    if server is None:
        return _gone(env, task, record.pid)
    server.state = ServerState.CRASHED
    env.dispatcher.drop(server)
    fences = fences_in(task.method)
    left_ms = int((server.deadline_s - env.clock()) * 1000)
    if LEASE in fences and left_ms > 0:
        return Wait(env.wall_ms() + left_ms + 1, record.data, durable=False)
    if COMMAND in fences:
        try:
            if not env.fencing.has_fenced(server, record.pid):
                return Wait(0, record.data, durable=False)
        except NotFenced as failed:
            return Retry(f"the fence command failed: {failed}", COMMAND_PAUSE_MS_MAX)
    return _fenced(env, record, server, fences)


def _fenced(env: RegionsEnv, record: Record, server: Server, fences: frozenset[str]) -> Effect:
    """Goes on once lease and command have fenced the process; its log, where that is a fence, comes last."""
    logged = LOG in fences
    how = "its fence command succeeded" if COMMAND in fences else "its lease ran out, so that it serves nothing"

    def entered(_: Change) -> None:
        env.fencing.forget(server.key)
        if not logged:
            env.journal.server(server, (CRASHED, FENCED), how, record.pid)

    task: Crash = CRASH.decode(record.data)
    fencing = Children((log_task.fencing(task),), SPLIT, record.data)
    return Effect(fencing if logged else Next(SPLIT, record.data), (), entered)


async def split(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has the parts of its log split by servers that are online, some at a time."""
    task: Crash = CRASH.decode(record.data)
    key = task.server, task.incarnation
    parts = env.log_parts.get(key) if LOG in fences_in(task.method) else ()
    if parts is None:  # the daemon that knew them died: the fence, repeated, lists them again
        return Next(FENCE, record.data)
    lost = marks.names(task.lost)
    wanted = tuple(part for part in parts if marks.short(part) not in lost) if lost else parts
    if not wanted:
        return Next(RELEASE, record.data)
    some = tuple(log_task.splitting(task, part) for part in wanted[:PARTS_TOGETHER])

    def entered(change: Change) -> None:
        env.log_parts[key] = wanted[len(change.puts) - 1 :]

    return Effect(Children(some, SPLIT, record.data, rest=lambda _: record.data), (), entered)


async def release(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Lets its regions go to other servers, and wakes the procedures that wait for that.

    From then on the process never registers again, also where an operator ends this procedure.
    """
    task: Crash = CRASH.decode(record.data)
    buried = env.model.bury((task.server, task.incarnation), record.pid)

    def entered(_: Change) -> None:
        env.model.enter_buried(buried)
        server = env.model.servers.get((task.server, task.incarnation))
        if server is not None:
            released(env, server)
            why = f"as {_freed_by(fences_in(task.method))}, they may go elsewhere"
            env.journal.server(server, (FENCED, RELEASED), why, record.pid)

    return Effect(Next(ASSIGN, record.data), _rows(buried), entered)


def _rows(buried: Buried) -> tuple[Write, ...]:
    return (Bury(*buried.key, buried.number), *map(Forget, buried.forgotten))


def _freed_by(fences: frozenset[str]) -> str:
    """Says after what the regions of a process may go elsewhere."""
    if LOG in fences:
        return "its log is split"
    return f"it is fenced by {' and '.join(one for one in (LEASE, COMMAND) if one in fences)}"


def released(env: RegionsEnv, server: Server) -> None:
    """Enters that a process is fenced and its log split."""
    server.state = ServerState.FENCED
    env.claimants.gone(server.key)
    env.wake_held()
    env.waking.add(server.regions)


async def assign(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has its regions assigned, the class that others depend on first; ends once it has none."""
    task: Crash = CRASH.decode(record.data)
    server = env.model.servers.get((task.server, task.incarnation))
    if server is None:
        return Done()
    closed, tables = abandoned(server.regions.values())
    if closed:
        return _closed(env, record, closed)
    if cut := [one for some in tables for one in some if env.endings.of(one.table) is not None]:
        return _closed(env, record, cut, S.OFFLINE)  # its batches would open none, and keep that change from its lock
    if tables and (until_ms := _held_until_ms(env, task.server)):
        env.unplaced.add(record.pid)
        return Wait(until_ms, record.data, durable=False)
    if tables:
        return Children(tuple(_batches(tables, str(server))), ASSIGN, record.data, rest=lambda _: record.data)
    if server.regions:
        return Wait(env.wall_ms() + POLL_MS, record.data, durable=False)

    def entered(_: Change) -> None:
        env.journal.server(server, (RELEASED, GONE), "its crash is dealt with", record.pid, troubles=False)
        env.model.drop_server(server.key)
        env.crashing.discard(server.key)
        env.log_parts.pop(server.key, None)
        env.left_out.pop(server.key, None)

    return Effect(
        Done(_result(task)), (DropServer(*server.key), *admission.drop_proof(server.key, server.proof)), entered
    )


def leave_out(record: Record, command: bytes) -> bytes:
    """Returns the message of a crash without a part of the log; raises :class:`ProcedureRefused`."""
    task: Crash = CRASH.decode(record.data)
    more: LostParts = LOST_PARTS.decode(command)
    if record.step != SPLIT:
        raise ProcedureRefused(f"pid {record.pid} splits no log now: wait until it does, or has ended")
    lost = marks.added(task.lost, more)
    if lost == task.lost:
        return record.data
    data = CRASH.encode(replace(task, lost=lost))
    if len(data) > DATA_BYTES_MAX:
        raise ProcedureRefused(
            f"pid {record.pid}: its record would have {len(data)} bytes with this part, at most {DATA_BYTES_MAX} are "
            f"stored, and {marks.count(task.lost)} parts are left out: have a server split this one, with an "
            "empty log in its place where it is lost"
        )
    return data


def _result(task: Crash) -> bytes:
    """Returns the result of a crash: empty, or which parts of the log operators have left out."""
    parts = ((one, part) for one in task.lost.left_out for part in one.parts)
    told = (f"{part.name!r} by {one.by}: {one.reason}" for one, part in islice(parts, LEFT_OUT_TOLD_MAX))
    count = marks.count(task.lost)
    return f"without {count} parts of its log, {'; '.join(told)}"[:LEFT_OUT_CHARS_MAX].encode() if count else b""


def _gone(env: RegionsEnv, task: Crash, pid: int) -> Effect:
    """Ends the crash of a process that left meanwhile, or was buried: it does not come back either."""
    buried = env.model.bury((task.server, task.incarnation), pid)

    def entered(_: Change) -> None:
        env.model.enter_buried(buried)
        env.crashing.discard(buried.key)

    return Effect(Done(b"it is gone already"), _rows(buried), entered)


def _held_until_ms(env: RegionsEnv, server: str) -> int:
    """Returns the end of the hold for a server whose next process has not come yet, 0 where nothing is held."""
    return 0 if env.model.current(server) is not None else env.model.marks.held_until_ms(server, env.wall_ms())


def _batches(tables: list[list[Region]], why: str) -> list[Record]:
    """Returns batches for the regions of some tables, as many as one step may begin."""
    batches = (one for some in tables for one in many.of_regions(many.ASSIGN_MANY, some, f"crash of {why}"))
    return list(islice(batches, BATCHES_MAX))


def _closed(env: RegionsEnv, record: Record, regions: list[Region], state: RegionState = S.CLOSED) -> Effect:
    """Enters that regions of tables that are not to be open have no owner.

    OFFLINE are those of a table that a change is to close: they are opened where it stays as it is.
    """
    count = min(len(env.fit((one.start, one.end) for one in regions)), many.TOGETHER)
    some = [one for one in regions[:count] if env.model.take(one, record.pid)]
    former = {one.id: "" if one.server is None else one.server.name for one in some}

    def entered(_: Change) -> None:
        for region in some:
            env.model.move(region, S.ABNORMALLY_CLOSED, None, env.now_ms())
            env.model.move(region, state, None, env.now_ms())
            env.model.former[region.id] = former[region.id]
            env.model.detach(region, record.pid)
            if state is S.OFFLINE:
                env.endings.cut(region)
            env.routes.changed(region)

    rows = tuple(
        Owner(one.id, state, "", 0, one.token, one.sequence, one.version, former=former[one.id]) for one in some
    )
    return Effect(Next(ASSIGN, record.data), rows, entered)


CRASH_OF_SERVER: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("fence", fence), Step("split", split), Step("release", release), Step("assign", assign)),
    lambda record: messages.lock_of_server(((task := CRASH.decode(record.data)).server, task.incarnation)),
    no_return=FENCE,
    holds_locks=True,
    command=leave_out,
    members=messages.of_process,
)
