"""Assign: a region is sent to a server until one has opened it (HBase ``TransitRegionStateProcedure``, open half).

``queue`` chooses a server and stores it. ``dispatch`` sends the open and waits for the result, however long. The result
is stored together with the region's row, and the procedure ends. A server that crashed meanwhile is left only once it
is fenced; then another one is chosen and stored. A region that a server may have by a procedure that an operator has
ended is closed there first. It never fails. A region that no server can open ends FAILED_OPEN, or is tried until an
operator ends that: by a change of its table, or by ending the procedure.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.dispatcher import answer_of, said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import close, messages
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.rows import Owner
from regent_agent import protocol
from regent_agent.protocol import Result
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Next, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions import transit
from state_machines.regions.entities import Region, Server
from state_machines.regions.placement import Wish, planned
from state_machines.regions.references import bounded
from state_machines.regions.states import FINAL, OWNED, RegionState, ServerState
from state_machines.regions.transit import Act, Answer, Attempts

NAME: Final = "assign"
QUEUE: Final = 0
DISPATCH: Final = 1
LISTED_MS: Final = 500
"""Pause until a look whether a server has listed its regions, where the store was restored."""
S = RegionState
NO_OWNER: Final = frozenset({S.OFFLINE})


def assigned(region: Region, why: str, server: Server | None, *, to: str = "", stays: bool = False) -> Record:
    """Returns the procedure that assigns a region; with ``server`` it is dispatched at once."""
    table = region.table.name
    if server is None:
        return child(NAME, TRANSIT.encode(Transit(region.id, table, why, to=to, stays=stays)))
    version = region.table.version
    chosen = Transit(region.id, table, why, to=to, server=server.name, incarnation=server.incarnation, version=version)
    return child(NAME, TRANSIT.encode(chosen), step=DISPATCH, locked=True)


def begun(env: RegionsEnv, region: Region, pid: int, server: Server, token: int, now_ms: int) -> None:
    """Enters that a region is opening at a server, which is stored. ``now_ms``: the loop's time."""
    env.model.attach(region, pid)
    if transit.begun_at(region.state) is not region.state:
        env.model.move(region, S.ABNORMALLY_CLOSED, None, now_ms)
        env.routes.changed(region)
    region.opening, region.clean = token, False
    env.model.move(region, S.OPENING, server, now_ms)


async def queue(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Chooses a server."""
    task: Transit = TRANSIT.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        return Done(b"the region is gone")
    if not env.model.take(region, record.pid, record.ancestors):
        return Done(b"pid %d has the region" % region.pid)
    if (why := unneeded(env, region)) is not None:
        return _not_wanted(env, record, region, why)
    if closes_first(region):
        assert region.server is not None
        after = replace(task, avoid=region.server.name)
        return Children((close.closed(region, task.why, returns=True),), QUEUE, TRANSIT.encode(after))
    if env.claimants.is_held(region):
        return _held(env, record)
    if env.left_ms(task.not_before_ms):
        return Wait(task.not_before_ms, record.data, durable=False)
    token = await _new_token(env, record, region, task) if env.able(region) else 0
    if env.claimants.is_held(region):  # again: a server may have listed it meanwhile
        return _held(env, record)
    server = chosen(env, region, task)
    if server is None:
        env.unplaced.add(record.pid)
        return Wait(0, record.data, durable=False)
    env.expect(record.pid, {server: 1})

    def entered(_: Change) -> None:
        env.expected(record.pid)
        begun(env, region, record.pid, server, token, env.now_ms())

    version = region.table.version
    sent = replace(task, server=server.name, incarnation=server.incarnation, token=token, version=version)
    return Effect(Next(DISPATCH, TRANSIT.encode(sent)), (), entered)


def _not_wanted(env: RegionsEnv, record: Record, region: Region, why: str) -> Outcome | Effect:
    """Ends without an open; a region that no server has is OFFLINE then, so that it is opened where its table stays."""
    is_cut = env.endings.of(region.table) is not None
    if is_cut:
        env.endings.cut(region)
    stays = NO_OWNER if is_cut else FINAL
    if region.server is not None or region.state in stays:  # its owner has it, or a crash or a close sees to it
        close.detach_or_return(env, record, region, TRANSIT.decode(record.data))
        return Done(why.encode())

    def entered(_: Change) -> None:
        if region.state in OWNED:
            env.model.move(region, S.ABNORMALLY_CLOSED, None, env.now_ms())
        region.token = token
        env.model.move(region, S.OFFLINE, None, env.now_ms())
        _over(env, record, region, TRANSIT.decode(record.data))

    former, token = env.model.former.get(region.id, ""), close.token_of(region)
    row = Owner(region.id, S.OFFLINE, "", 0, token, region.sequence, region.version, int(region.clean), former)
    return Effect(Done(why.encode()), (row,), entered)


def _held(env: RegionsEnv, record: Record) -> Wait:
    """Waits until no server can have the region."""
    env.claimants.held.add(record.pid)
    return Wait(0, record.data, durable=False)


async def _new_token(env: RegionsEnv, record: Record, region: Region, task: Transit) -> int:
    """Returns a token above all those before: the pid at first, which spares a number.

    A server that was left may have opened the region all the same, so the next one needs a token of its own. So does a
    procedure of an earlier term: where the store was restored from a copy, its pid may have been a token since, and no
    server may have shown that yet.
    """
    listed = env.contradictions.above(region.id)
    known = max(region.token, region.opening, task.token, listed, env.former_number)
    return record.pid if record.pid > known else await env.number(listed)


def token_of(record: Record, task: Transit) -> int:
    """Returns the token of an open that is dispatched."""
    return task.token or record.pid


def unneeded(env: RegionsEnv, region: Region) -> str | None:
    """Returns why a region is not to be opened; None where it is."""
    if env.endings and (ending := env.endings.of(region.table)) is not None:
        return ending.why()
    owner = None if region.server is None else region.server.state
    return transit.unneeded(region.table.state, region.state, owner)


def closes_first(region: Region) -> bool:
    """Checks whether a server may have a region by a procedure that was ended: it closes the region first."""
    return transit.closes_first(region.state, None if region.server is None else region.server.state)


def chosen(env: RegionsEnv, region: Region, task: Transit) -> Server | None:
    """Returns the wanted server where it is online, else one by the placement; None where there is none."""
    servers = env.able(region)
    if not servers:
        return None
    wishes = [wish(env, region, task.avoid, task.to)]
    return planned(env.placement, wishes, servers, env.prompt(servers), env.draw, env.model.marks.weights)[0]


def wish(env: RegionsEnv, region: Region, avoid: str = "", to: str = "") -> Wish:
    """Returns what a region needs: its wanted server, else the one of its pin, else the one that it was held for.

    It avoids the server that failed last, else the one at which an operator has given its open up.
    """
    last = region.server.name if region.server is not None else env.model.former.get(region.id, "")
    marks = env.model.marks
    held = last if last and marks.held_until_ms(last, env.wall_ms()) else ""
    to = to or marks.pinned(region.id) or held
    given_up = env.given_up.of(region.id, env.now_ms()) if env.given_up else ""
    return Wish(region, last, avoid or (given_up if given_up != to else ""), to)


async def dispatch(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Sends the open, or goes on with its result."""
    task: Transit = TRANSIT.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        env.results.used(record.pid)
        return Done(b"the region is gone")
    key = task.server, task.incarnation
    if record.pid in env.outdated and not env.model.is_fenced(key):
        server = env.model.servers.get(key)
        if server is not None and not server.here:
            return Wait(env.wall_ms() + LISTED_MS, record.data, durable=False)
        return _left(env, record, region, replace(task, avoid=""))
    fenced, result = env.model.is_fenced(key), env.results.get(record.pid)
    options = env.options
    answer = answer_of(result)
    failed = task.failed if answer is Answer.OPENED else _failed(env, record.pid, task, result)
    waited_ms = env.wall_ms() - record.updated_ms if answer is Answer.NOT_RUNNING else 0
    attempts = Attempts(task.retries, options.open_attempts_max, waited_ms, options.not_running_ms_max)
    match transit.opening(fenced, answer, attempts):
        case Act.SEND:
            return _sent(env, record, region, env.model.servers[key], token_of(record, task))
        case Act.END:
            assert result is not None
            return _opened(env, record, region, task, result.sequence)
        case Act.AGAIN:
            env.results.used(record.pid)
            env.dispatcher.forget(record.pid)
            return Wait(env.wall_ms() + options.not_running_pause_ms, record.data, durable=False)
        case Act.GIVE_UP:
            return _given_up(env, record, region, "" if result is None else result.text, failed)
        case _ if fenced:
            return _left(env, record, region, replace(task, avoid=""), S.ABNORMALLY_CLOSED)
        case _:
            return _left(env, record, region, _retried(env, task, result, failed))


def _sent(env: RegionsEnv, record: Record, region: Region, server: Server, token: int) -> Wait:
    if region.pid != record.pid or region.state is not S.OPENING or region.server is not server:
        begun(env, region, record.pid, server, token, env.now_ms())
    if server.state is ServerState.ONLINE and env.dispatcher.expects(record.pid) != server.key:
        env.dispatcher.send(server, opening(env, record.pid, region, token))
    return Wait(0, record.data, durable=False)


def _failed(env: RegionsEnv, pid: int, task: Transit, result: Result | None) -> str:
    """Notes what the server said, and returns it; that of the attempt before where it said nothing."""
    if result is None:
        return task.failed
    text = said(f"{task.server},{task.incarnation}", result)
    env.causes.noted(pid, task.region, text)
    return text


def _retried(env: RegionsEnv, task: Transit, result: Result | None, failed: str) -> Transit:
    """Returns the message after an open that failed, or was not begun: another server is tried first."""
    if result is None or result.outcome in (protocol.BUSY, protocol.NOT_RUNNING):
        return replace(task, avoid=task.server, failed=failed)
    pause_ms = transit.pause_ms(task.retries + 1)
    until_ms = env.wall_ms() + pause_ms if pause_ms else 0
    return replace(task, retries=task.retries + 1, avoid=task.server, not_before_ms=until_ms, failed=failed)


def opening(env: RegionsEnv, pid: int, region: Region, token: int) -> protocol.Open:
    """Returns the operation. Each server that is tried has a token of its own."""
    table = region.table
    sources = [protocol.Source(*bounded(one)) for one in env.model.sources.get(region.id, ())]
    return protocol.Open(
        pid, region.id, token, table.name, region.start, region.end, region.sequence, table.options, sources
    )


def _opened(env: RegionsEnv, record: Record, region: Region, task: Transit, sequence: int) -> Effect:
    server = env.model.servers[task.server, task.incarnation]
    token, sequence = token_of(record, task), max(sequence, region.sequence)

    def entered(_: Change) -> None:
        region.token, region.sequence, region.version, region.clean = token, sequence, task.version, False
        env.model.move(region, S.OPEN, server, env.now_ms())
        _over(env, record, region, task)
        env.causes.opened(region.id)
        env.given_up.opened(region.id)
        env.routes.changed(region)

    row = Owner(region.id, S.OPEN, server.name, server.incarnation, token, sequence, task.version)
    return Effect(Done(), (row,), entered)


def _left(env: RegionsEnv, record: Record, region: Region, task: Transit, state: RegionState = S.OPENING) -> Effect:
    """Goes back to the choice of a server: this one is fenced, or does not have the region."""
    after = replace(task, server="", incarnation=0, token=token_of(record, task))

    def entered(_: Change) -> None:
        if region.state is S.OPENING:
            env.model.move(region, state, None, env.now_ms())
        env.dispatcher.forget(record.pid)
        env.results.used(record.pid)
        env.outdated.discard(record.pid)

    return Effect(Next(QUEUE, TRANSIT.encode(after)), (), entered)


def _given_up(env: RegionsEnv, record: Record, region: Region, why: str, failed: str) -> Effect:
    """Ends without an open. The row keeps the token of the latest attempt: a server may have had edits under it."""
    token = close.token_of(region)

    def entered(_: Change) -> None:
        region.token = token
        env.model.move(region, S.FAILED_OPEN, None, env.now_ms())
        env.causes.given_up(region.id, failed)
        _over(env, record, region, TRANSIT.decode(record.data))

    row = Owner(region.id, S.FAILED_OPEN, "", 0, token, region.sequence, region.version)
    return Effect(Done(b"failed_open: " + why.encode()[:500]), (row,), entered)


def _over(env: RegionsEnv, record: Record, region: Region, task: Transit) -> None:
    close.detach_or_return(env, record, region, task)
    env.dispatcher.forget(record.pid)
    env.results.used(record.pid)


ASSIGN: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("queue", queue), Step("dispatch", dispatch)),
    lambda record: messages.lock_of_region((task := TRANSIT.decode(record.data)).table, task.region),
    no_return=QUEUE,
    holds_locks=True,
    members=messages.of_transit,
)
