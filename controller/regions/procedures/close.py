"""Close: a server gives a region up (HBase ``TransitRegionStateProcedure``, close half).

The server that has the region closes it, or is fenced: there is no third way, and no time after which the region counts
as closed.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.dispatcher import answer_of, said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.rows import Owner
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions import transit
from state_machines.regions.entities import Region, Server
from state_machines.regions.states import OWNED, RegionState, ServerState
from state_machines.regions.transit import Act

NAME: Final = "close"
QUEUE: Final = 0
DISPATCH: Final = 1
AGAIN_MS: Final = 1_000
S = RegionState
UNTOLD: Final = OWNED - {S.CLOSING}
"""States in which a server may have a region, and no close of it has begun."""


def closed(region: Region, why: str, *, returns: bool = False, stays: bool = False) -> Record:
    """Returns the procedure that closes a region; one that a server has, or may have, is dispatched at once.

    ``returns``: its parent has it opened then. ``stays``: its parent has the region, and gets it back.
    """
    task = Transit(region.id, region.table.name, why, returns=returns, stays=stays)
    if region.state not in OWNED or region.server is None:
        return child(NAME, TRANSIT.encode(task))
    chosen = _chosen(task, region, region.server)
    return child(NAME, TRANSIT.encode(chosen), step=DISPATCH, locked=True)


def begun(env: RegionsEnv, region: Region, pid: int, server: Server) -> None:
    """Enters that a region is closing, which is stored."""
    env.model.attach(region, pid)
    if region.state in UNTOLD:
        env.model.move(region, S.CLOSING, server, env.now_ms())
        env.routes.changed(region)


def detach_or_return(env: RegionsEnv, record: Record, region: Region, task: Transit) -> None:
    """Lets the region go, or gives it back to the procedure that goes on with it."""
    if task.stays:
        env.model.attach(region, record.parent)
    else:
        env.model.detach(region, record.pid)


def _chosen(task: Transit, region: Region, server: Server) -> Transit:
    return replace(task, server=server.name, incarnation=server.incarnation, token=token_of(region))


def token_of(region: Region) -> int:
    """Returns the token of the open that is closed: also of one whose end is not known."""
    return max(region.token, region.opening)


async def queue(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Finds the server that has the region."""
    task: Transit = TRANSIT.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        return Done(b"the region is gone")
    server = region.server
    if not env.model.take(region, record.pid, record.ancestors):
        return Done(b"pid %d has the region" % region.pid)
    if (why := transit.uncloseable(region.state)) is not None:
        detach_or_return(env, record, region, task)
        return Done(why.encode())
    if server is None:
        return _ended(env, record, region, task)
    data = TRANSIT.encode(_chosen(task, region, server))
    return Effect(Next(DISPATCH, data), (), lambda _: begun(env, region, record.pid, server))


async def dispatch(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Sends the close, or goes on with its result."""
    task: Transit = TRANSIT.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        env.results.used(record.pid)
        return Done(b"the region is gone")
    key = task.server, task.incarnation
    result, fenced = env.results.get(record.pid), env.model.is_fenced(key)
    match transit.closing(fenced, answer_of(result)):
        case Act.END:
            return _ended(env, record, region, task, by_word=not fenced)
        case Act.AGAIN:
            if result is not None:
                env.causes.noted(record.pid, region.id, said(f"{task.server},{task.incarnation}", result))
            env.results.used(record.pid)
            env.dispatcher.forget(record.pid)
            return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
    server = env.model.servers[key]
    begun(env, region, record.pid, server)
    if server.state is ServerState.ONLINE and env.dispatcher.expects(record.pid) != key:
        env.dispatcher.send(server, protocol.Close(record.pid, region.id, task.token))
    return Wait(0, record.data, durable=False)


def _ended(env: RegionsEnv, record: Record, region: Region, task: Transit, *, by_word: bool = False) -> Effect:
    """Ends the close. It is clean where the process said so, and had the region open: the open's end is stored."""
    state = S.OFFLINE if task.returns else S.CLOSED
    copied = env.restored and task.token <= env.former_number  # another process may have had it since
    former = task.server or env.model.former.get(region.id, "")
    clean = region.clean or (by_word and task.token == region.token and not copied)
    token = token_of(region)

    def entered(_: Change) -> None:
        if region.state in UNTOLD:  # its server is fenced, or it has none
            env.model.move(region, S.ABNORMALLY_CLOSED, None, env.now_ms())
        region.token, region.clean = token, clean
        env.model.move(region, S.CLOSED, None, env.now_ms())
        if task.returns:
            env.model.move(region, S.OFFLINE, None, env.now_ms())
        if former:
            env.model.former[region.id] = former
        detach_or_return(env, record, region, task)
        env.dispatcher.forget(record.pid)
        env.results.used(record.pid)
        env.routes.changed(region)

    row = Owner(region.id, state, "", 0, token, region.sequence, region.version, int(clean), former)
    return Effect(Done(), (row,), entered)


CLOSE: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("queue", queue), Step("dispatch", dispatch)),
    lambda record: messages.lock_of_region((task := TRANSIT.decode(record.data)).table, task.region),
    no_return=QUEUE,
    holds_locks=True,
    members=messages.of_transit,
)
