"""Procedures on servers: drain moves all regions of one away, and stray closes one that a server should not have."""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Kind, Step
from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from controller.regions.kinds import about
from controller.regions.kinds.answers import said
from controller.regions.kinds.messages import CRASH, MOVE, TRANSIT, Crash, Move, Transit
from controller.regions.kinds.move import NAME as MOVE_NAME
from regent_agent import protocol
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions.states import OWNED, ServerState

DRAIN: Final = "drain_server"
STRAY: Final = "close_stray"
MOVES_TOGETHER: Final = 50
"""Regions that a drain moves at a time: the others go on serving."""
PAUSE_MS: Final = 500
CRASHED: Final = b"the server crashed before it was drained"
"""Begin of the result of a drain whose process crashed with regions: its crash sees to these."""


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
    free = (one for one in server.regions.values() if not one.pid and one.state in OWNED)
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
        env.unheard.settled(key, task.region)
        env.wake_held()
        return Done()
    region = env.model.regions.get(task.region)
    if region is not None and region.server is server and task.token in (region.token, region.opening):
        env.dispatcher.forget(record.pid)
        env.unheard.settled(key, task.region)
        return Done(b"it is its owner")
    if result is not None:
        env.causes.noted(record.pid, task.region, said(server, result))
        env.dispatcher.forget(record.pid)
    if env.dispatcher.expects(record.pid) != key:
        env.dispatcher.send(server, protocol.Close(record.pid, task.region, task.token))
    return Wait(env.wall_ms() + 2 * PAUSE_MS, record.data, durable=False)


def _of_server(record: Record, what: str) -> Demand:
    name = f"{what} of {CRASH.decode(record.data).server},{CRASH.decode(record.data).incarnation}"
    return Demand(Resource(Scope.SERVER, name), exclusive=True)


DRAIN_SERVER: Final[Kind[RegionsEnv]] = Kind(
    DRAIN,
    (Step("drain", drain, undrain),),
    lambda record: _of_server(record, "drain"),
    holds_locks=True,
    members=about.process,
)
CLOSE_STRAY: Final[Kind[RegionsEnv]] = Kind(
    STRAY,
    (Step("close", close_stray),),
    lambda record: Demand(
        Resource(Scope.SERVER, f"stray {(task := TRANSIT.decode(record.data)).region} of {task.server}"), exclusive=True
    ),
    no_return=0,
    members=about.transit,
)
