"""Declares procedures on servers, and on marks of operators, each with a pid, a reason and a place in the journal.

A drain moves all regions of a process away, a stray closes one that a process should not have. A name is forgotten so
that a process below its incarnation registers again. No region depends on that memory: a process with regions that is
no member ends in any case.
"""

from __future__ import annotations

import logging
from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.dispatcher import Key, said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages
from controller.regions.procedures.messages import CRASH, MOVE, TRANSIT, Codec, Crash, Message, Move, Transit
from controller.regions.procedures.move import NAME as MOVE_NAME
from metadata_store.catalog.judging import fault_of
from metadata_store.catalog.rows import DropMark, Forget, MarkRow, PutMark, PutServer, ServerRow
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.procedures.transition import Members
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import OWNED, ServerState

log = logging.getLogger("regent.regions")

DRAIN: Final = "drain_server"
STRAY: Final = "close_stray"
MOVES_TOGETHER: Final = 50
"""Regions that a drain moves at a time: the others go on serving."""
PAUSE_MS: Final = 500
CRASHED: Final = b"the server crashed before it was drained"
"""Begin of the result of a drain whose process crashed with regions: its crash sees to these."""
FORGET: Final = "forget_server"
RECOVER: Final = "recover_server"
RECOVERED: Final = b"its row is stored: restart the daemon, which has its regions then"
"""Result of a recovery that has stored a row."""
MARK: Final = "mark"
UNMARK: Final = "unmark"
MARKS_MAX: Final = 10_000
"""Marks in the store: ZooKeeper lists them in one response, which has a bound."""
DROPPED_TOGETHER: Final = 100


async def drain(env: RegionsEnv, record: Record) -> Outcome:
    """Moves some regions to other servers; ends once the process has none.

    A forced drain that waits for the lock of one that is not has that one move all regions.
    """
    task: Crash = CRASH.decode(record.data)
    server = env.model.servers.get((task.server, task.incarnation))
    if server is not None and server.state is not ServerState.ONLINE and server.regions:
        return Done(b"%s: its crash moves %d of its regions" % (CRASHED, len(server.regions)))
    if server is None or server.state is not ServerState.ONLINE:
        return Done(b"the server is gone")
    server.leaving = True
    if not server.regions and not server.expected:  # a step of this turn may have chosen it: that is entered later
        return Done()
    kept = env.model.sources if env.inheriting() is None else ()  # closed, they could be opened nowhere
    free = (one for one in server.regions.values() if not one.pid and one.state in OWNED and one.id not in kept)
    forced, now_ms = task.force or server.forced, env.now_ms()
    some = [one for one in free if forced or not env.cooldown.left_ms(one.id, now_ms)][:MOVES_TOGETHER]
    if not some or not env.servers():
        return Wait(env.wall_ms() + PAUSE_MS, record.data, durable=False)
    some.sort(key=lambda one: (-one.table.kind, one.id))
    moves = tuple(child(MOVE_NAME, MOVE.encode(Move(one.id, one.table.name, "", f"drain of {server}"))) for one in some)
    return Children(moves, record.step, record.data, rest=lambda _: record.data)


async def undrain(env: RegionsEnv, record: Record) -> Outcome:
    """Lets the process get regions again."""
    task: Crash = CRASH.decode(record.data)
    stays(env, (task.server, task.incarnation), record.pid)
    return Done()


def stays(env: RegionsEnv, key: Key, pid: int = 0) -> None:
    """Lets a process get regions again, unless a drain of it goes on. ``pid``: of a drain that is undone or ended."""
    server = env.model.servers.get(key)
    if server is not None and not any(one == key for other, one in env.draining.items() if other != pid):
        server.leaving = server.forced = False
        env.wake_unplaced()


async def close_stray(env: RegionsEnv, record: Record) -> Outcome:
    """Has a process close a region that another one has, or that does not exist."""
    task: Transit = TRANSIT.decode(record.data)
    key = task.server, task.incarnation
    server = env.model.servers.get(key)
    if server is None or server.state is not ServerState.ONLINE:
        env.results.used(record.pid)
        env.dispatcher.forget(record.pid)
        return Done(b"the server is gone")
    result = env.results.get(record.pid)
    env.results.used(record.pid)
    if result is not None and result.outcome == protocol.CLOSED:
        env.dispatcher.forget(record.pid)
        env.claimants.settled(key, task.region)
        env.wake_held()
        return Done()
    region = env.model.regions.get(task.region)
    if region is not None and region.server is server and task.token in (region.token, region.opening):
        env.dispatcher.forget(record.pid)
        env.claimants.settled(key, task.region)
        return Done(b"it is its owner")
    if result is not None:
        env.causes.noted(record.pid, task.region, said(server, result))
        env.dispatcher.forget(record.pid)
    if env.dispatcher.expects(record.pid) != key:
        env.dispatcher.send(server, protocol.Close(record.pid, task.region, task.token, reported=True))
    return Wait(env.wall_ms() + 2 * PAUSE_MS, record.data, durable=False)


def _of_server(record: Record, what: str) -> Demand:
    name = f"{what} of {CRASH.decode(record.data).server},{CRASH.decode(record.data).incarnation}"
    return Demand(Resource(Scope.SERVER, name), exclusive=True)


DRAIN_SERVER: Final[Kind[RegionsEnv]] = Kind(
    DRAIN,
    (Step("drain", drain, undrain),),
    lambda record: _of_server(record, "drain"),
    holds_locks=True,
    members=messages.of_process,
)
CLOSE_STRAY: Final[Kind[RegionsEnv]] = Kind(
    STRAY,
    (Step("close", close_stray),),
    lambda record: Demand(
        Resource(Scope.SERVER, f"stray {(task := TRANSIT.decode(record.data)).region} of {task.server}"), exclusive=True
    ),
    no_return=0,
    members=messages.of_transit,
)


def unforgettable(model: Regions, name: str) -> str | None:
    """Returns why a name cannot be forgotten; None where it can."""
    if (member := model.latest(name)) is not None:
        return f"server {member} is a member: end it by 'regent servers expire {member} --wait', then forget its name"
    if name not in model.buried:
        return f"no fenced process of a server {name!r} is remembered: nothing but its secret keeps that server out"
    return None


async def forget(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the name; one that has a process by now stays."""
    task: Crash = CRASH.decode(record.data)
    if (why := unforgettable(env.model, task.server)) is not None:
        return Failed(why)
    return Effect(Done(), (Forget(task.server),), lambda _: env.model.forget(task.server))


def _demand_of_name(record: Record) -> Demand:
    task: Crash = CRASH.decode(record.data)
    return Demand(Resource(Scope.SERVER, f"name of {task.server}"), exclusive=True)


FORGET_SERVER: Final[Kind[RegionsEnv]] = Kind(
    FORGET, (Step("forget", forget),), _demand_of_name, members=messages.of_process
)


def unrecoverable(model: Regions, key: Key) -> str | None:
    """Returns why a process cannot become a member again; None where it can."""
    if (member := model.servers.get(key)) is not None:
        return f"server {member} is a member: its crash is dealt with once its lease is over"
    return None if key in model.strangers else f"no region that is left out names the server {key[0]},{key[1]}"


async def recover(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the row of a process of which rows of regions alone tell.

    The next term has its regions, and no other path than that of any member: it comes back within a lease, or its crash
    is dealt with. Were it a member before, its crash would find none of them.
    """
    task: Crash = CRASH.decode(record.data)
    key = task.server, task.incarnation
    if (why := unrecoverable(env.model, key)) is not None:
        return Done(why.encode()) if key in env.model.servers else Failed(why)

    def entered(_: Change) -> None:
        env.model.damages.stored.servers.add(f"{key[0]},{key[1]}")

    return Effect(Done(RECOVERED), (PutServer(ServerRow(*key, "")),), entered)


RECOVER_SERVER: Final[Kind[RegionsEnv]] = Kind(
    RECOVER, (Step("store", recover),), _demand_of_name, members=messages.of_process
)


class MarkTask(Message, frozen=True):
    """A mark that is set or removed, see :class:`state_machines.regions.marks.Mark`."""

    kind: MarkKind
    subject: str
    value: str = ""
    until_ms: int = 0
    why: str = ""


MARK_TASK = Codec(MarkTask)


async def mark(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores a mark, and lets procedures look at it; some marks that mean nothing any more go with it.

    One that no daemon could read again is refused: a record in the store may be damaged.
    """
    task: MarkTask = MARK_TASK.decode(record.data)
    marks = env.model.marks
    over = marks.over(env.wall_ms(), env.model.ids)[:DROPPED_TOGETHER]
    if len(marks) - len(over) >= MARKS_MAX and marks.get(task.kind, task.subject) is None:
        return Failed(f"there are {len(marks)} marks, which is the most: remove some of 'regent regions marks'")
    found = Mark(task.kind, task.subject, task.value, task.until_ms, record.caller.principal, record.caller.reason)
    row = MarkRow(found.kind, found.subject, found.value, found.until_ms, found.by, found.reason)
    if (fault := fault_of(row)) is not None:
        field, _, why = fault
        return Failed(f"the mark could not be read again: its {field}: {why}")

    def entered(_: Change) -> None:
        for one in over:
            marks.drop(one.kind, one.subject)
        if found.kind is MarkKind.LEVEL:
            _tell(record.pid, marks.level, found)
        marks.put(found)

    result = ahead_of(env.model, task.kind, task.subject).encode()
    return Effect(Done(result), (*(DropMark(one.kind, one.subject) for one in over), PutMark(row)), entered)


def ahead_of(model: Regions, kind: MarkKind, name: str) -> str:
    """Says that a weight waits for a server with its name; empty for another mark, and where one is known."""
    if kind is not MarkKind.WEIGHT or name in model.buried or model.latest(name) is not None:
        return ""
    return (
        f"no server {name} is known: the weight counts once one comes, and 'regent servers weight {name} 1' removes it"
    )


def _tell(pid: int, before: int, mark: Mark) -> None:
    log.info(
        "pid=%d %s: the store has level %s, and had %d, by %s: daemons that do not know it do not go on with this "
        "store; a copy from before has the former level",
        *(pid, MARK, mark.value, before, mark.by or "nobody who is named"),
    )


async def unmark(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes a mark; what waited because of it goes on.

    The end of a cordon ends that a process is leaving, too, unless a drain of it goes on.
    """
    task: MarkTask = MARK_TASK.decode(record.data)
    if task.kind is MarkKind.LEVEL:
        return Failed("the level of a store never falls")

    def entered(_: Change) -> None:
        env.model.marks.drop(task.kind, task.subject)
        server = env.model.current(task.subject) if task.kind is MarkKind.CORDON else None
        if server is not None:
            stays(env, server.key)
        env.wake_unplaced()

    return Effect(Done(), (DropMark(task.kind, task.subject),), entered)


def _of_mark(record: Record) -> Members:
    """Names the kind of a mark, and its server or region where it has one."""
    task: MarkTask = MARK_TASK.decode(record.data)
    if task.kind is MarkKind.PIN:
        return Members(region=int(task.subject), server=task.value, why=task.why, what=task.kind)
    if task.kind in (MarkKind.OFF, MarkKind.LEVEL):
        return Members(why=task.why, what=task.kind)
    return Members(server=task.subject, why=task.why, what=task.kind)


def _demand_of_marks(record: Record) -> Demand:
    """Demands all marks: one step may remove marks of other subjects."""
    MARK_TASK.decode(record.data)
    return Demand(Resource(Scope.SERVER, "marks"), exclusive=True)


MARK_SUBJECT: Final[Kind[RegionsEnv]] = Kind(MARK, (Step("store", mark),), _demand_of_marks, members=_of_mark)
UNMARK_SUBJECT: Final[Kind[RegionsEnv]] = Kind(UNMARK, (Step("remove", unmark),), _demand_of_marks, members=_of_mark)
