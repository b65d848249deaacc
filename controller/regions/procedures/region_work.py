"""Work on a region: its server does what the service knows by a name, such as a flush (HBase ``RSProcedure``).

The lock of the region is held until the work is done, so a move waits for it. Where the server crashes, this procedure
has the region assigned itself, and sends the work to the next server: the crash leaves the region to it, and it never
waits for that. Work is sent again until it succeeds, fails too often, or an operator ends it; done twice, it is as done
once. Nothing is undone: work that was sent may be done all the same.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import named
from controller.regions.dispatcher import said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, messages
from controller.regions.procedures.messages import REGION_WORK, RegionWork
from regent_agent import protocol
from regent_agent.protocol import Result
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Failed, Outcome, Wait, Yield
from state_machines.procedures.record import Record, child
from state_machines.regions import transit
from state_machines.regions.entities import Region, Server
from state_machines.regions.states import RegionState, ServerState

NAME: Final = "region_work"
TRIES_MAX: Final = 3
"""Failures after which work fails, unless it says otherwise."""
AGAIN_MS: Final = 1_000
NOT_DONE: Final = frozenset({protocol.BUSY, protocol.NOT_RUNNING})
"""Outcomes after which nothing was done."""


def lacking(env: RegionsEnv, *works: str) -> str | None:
    """Returns which servers do not do some pieces of work; None where all do all of them."""
    found = {one: named(sorted(map(str, servers))) for one in works if (servers := env.lacking(one))}
    if not found:
        return None
    lacks = "; ".join(f"servers {names} do no work {what!r}" for what, names in found.items())
    return f"{lacks}: start versions of them that name it among their features"


def working(
    region: Region,
    what: str,
    data: bytes = b"",
    *,
    why: str = "",
    tries_max: int = TRIES_MAX,
    tells: bool = False,
    stays: bool = False,
) -> Record:
    """Returns the procedure that has work done on a region.

    ``tries_max``: failures after which it fails with the server's words, 0: never. ``tells``: the parent finds the
    result in its record. ``stays``: the parent has the region, and gets it back.
    """
    task = RegionWork(region.id, region.table.name, what, data, why, tries_max, stays=stays)
    return child(NAME, REGION_WORK.encode(task), tells=tells)


async def work(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Sends the work to the owner, and goes on with its result; has the region assigned where its owner is fenced."""
    task: RegionWork = REGION_WORK.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        return Failed(f"region {task.table}#{task.region} is gone: see 'regent regions list --table {task.table}'")
    if not env.model.hold(region, record.pid, record.ancestors):
        return Yield()  # a crash has just taken it, and waits for the lock: it gets that now, and this goes on later
    owner = region.server
    if owner is not None and owner.state is ServerState.CRASHED:
        return Wait(0, record.data, durable=False)
    if owner is None or owner.state is ServerState.FENCED or region.state is not RegionState.OPEN:
        return _assigned(env, record, region, task)
    if not owner.here:
        return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
    if task.what not in owner.features:
        return Failed(f"{owner} does no work {task.what!r}: start a version that names it among its features")
    return _done(env, record, region, owner, task)


def _done(env: RegionsEnv, record: Record, region: Region, owner: Server, task: RegionWork) -> Outcome | Effect:
    """Goes on with the result of the owner, or awaits it."""
    if env.left_ms(task.not_before_ms):
        return Wait(task.not_before_ms, record.data, durable=False)
    result = env.results.get(record.pid)
    if result is None:
        if env.dispatcher.expects(record.pid) != owner.key:
            table = region.table.name
            env.dispatcher.send(owner, protocol.Work(record.pid, task.what, region.id, region.token, table, task.data))
        return Wait(0, record.data, durable=False)
    if result.outcome == protocol.DONE:
        return Effect(Done(result.data), (), lambda _: _detach_or_return(env, record, region, task))
    after = _again(env, task, owner, result)
    if task.tries_max and after.failures >= task.tries_max:
        return Failed(f"work {task.what!r} on region {region} failed {after.failures} times: {after.failed}")
    env.causes.noted(record.pid, region.id, after.failed)
    return Effect(Wait(after.not_before_ms, REGION_WORK.encode(after)), (), lambda _: _forget(env, record))


def _again(env: RegionsEnv, task: RegionWork, owner: Server, result: Result) -> RegionWork:
    """Returns the message after work that was not done: it is sent again after a pause."""
    failures = task.failures + (result.outcome not in NOT_DONE)
    pause_ms = AGAIN_MS + transit.pause_ms(failures)
    return replace(task, failures=failures, failed=said(owner, result), not_before_ms=env.wall_ms() + pause_ms)


def _assigned(env: RegionsEnv, record: Record, region: Region, task: RegionWork) -> Outcome | Effect:
    """Has a region without an owner opened, where it is to be open."""
    if (why := assign.unneeded(env, region)) is not None:
        return Failed(f"region {region} is {region.state.name} and {why}: work needs an open region")
    if region.state in (RegionState.CLOSED, RegionState.FAILED_OPEN):
        return Failed(f"region {region} is {region.state.name}: 'regent regions assign {region.id}' opens it")
    children = (assign.assigned(region, task.why, None, stays=True),)
    return Effect(Children(children, record.step, record.data), (), lambda _: _forget(env, record))


def _forget(env: RegionsEnv, record: Record) -> None:
    env.results.used(record.pid)
    env.dispatcher.forget(record.pid)


def _detach_or_return(env: RegionsEnv, record: Record, region: Region, task: RegionWork) -> None:
    _forget(env, record)
    if task.stays:
        env.model.attach(region, record.parent)
    else:
        env.model.detach(region, record.pid)


async def leave(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Lets the region go: the work is not awaited any more."""
    task: RegionWork = REGION_WORK.decode(record.data)
    region = env.model.regions.get(task.region)

    def left(_: Change) -> None:
        if region is not None and region.pid == record.pid:
            _detach_or_return(env, record, region, task)
        else:
            _forget(env, record)

    return Effect(Done(), (), left)


REGION_WORKS: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("work", work, leave),),
    lambda record: messages.lock_of_region((task := REGION_WORK.decode(record.data)).table, task.region),
    holds_locks=True,
    members=messages.of_region_work,
)
