"""Publish: all processes of the service get a value, in two phases, or none does.

Each process that names the feature prepares the value first. Where one cannot, all are told that it is of no use. Once
the value is stored, nothing is undone: each process commits it, one that came meanwhile among them. Processes that
register from then on get it with the response, so none misses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.procedures.broadcast import Broadcast, BroadcastEnv, Phase, Place, Resending
from controller.procedures.kinds import Effect, Execute, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures.messages import Codec, Message
from metadata_store.catalog.rows import Drop, Put
from regent_agent import protocol
from regent_agent.protocol import PUBLISHED_MAX, Published
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions.damage import RowKind
from state_machines.regions.model import Regions
from state_machines.regions.shapes import PublishedRow
from state_machines.regions.states import ServerState

NAME: Final = "publish"
REMOVE: Final = "unpublish"
STORE: Final = 2
ONES: Final = Resending(timeout_s=None, pause_ms=1_000)


class PublishTask(Message, frozen=True):
    """A value that is published or removed. ``sent``: the processes of the present phase, and their results."""

    name: str
    value: bytes = b""
    why: str = ""
    number: int = 0
    sent: Broadcast = Broadcast(())


PUBLISH_TASK = Codec(PublishTask)


def unpublishable(model: Regions, name: str) -> str | None:
    """Returns why a value cannot be published; None where it can."""
    if name in model.published or len(model.published) < PUBLISHED_MAX:
        return None
    return f"{PUBLISHED_MAX} values are published, which is the most: 'regent published remove NAME' removes one"


def admit(_: Record, others: Sequence[Record]) -> str | None:
    """Returns why no further value is published now: each that goes on may become one more."""
    if len(others) < PUBLISHED_MAX:
        return None
    return f"{len(others)} values are on their way to processes, which is the most: try again once some have come"


def processes(env: RegionsEnv) -> tuple[str, ...]:
    """Returns the processes that have published values."""
    servers = (one for one in env.model.servers.values() if one.state is ServerState.ONLINE)
    return tuple(sorted(str(one) for one in servers if protocol.PUBLISH in one.features))


async def begin(env: RegionsEnv, record: Record) -> Outcome:
    """Numbers the value, and lists the processes that prepare it."""
    task: PublishTask = PUBLISH_TASK.decode(record.data)
    if (why := unpublishable(env.model, task.name)) is not None:
        return Failed(why)
    if any(one.state is ServerState.ONLINE and not one.here for one in env.model.servers.values()):
        return Wait(env.wall_ms() + ONES.pause_ms, record.data, durable=False)  # what it can do is not known yet
    before = env.model.published.get(task.name)
    number = max(record.pid, before.number + 1 if before is not None else 0)
    message = msgspec.msgpack.encode(Published(task.name, number, task.value))
    sent = Broadcast(processes(env), message)
    return Next(record.step + 1, PUBLISH_TASK.encode(replace(task, number=number, sent=sent)))


async def store(env: RegionsEnv, record: Record) -> Effect:
    """Stores the value: from now on it counts."""
    task: PublishTask = PUBLISH_TASK.decode(record.data)
    row = PublishedRow(task.name, task.number, task.value)

    def entered(_: Change) -> None:
        env.model.published[task.name] = row
        env.model.damages.drop_named(RowKind.PUBLISHED, task.name)

    return Effect(Next(record.step + 1, record.data), (Put(row),), entered)


async def listed(env: RegionsEnv, record: Record) -> Outcome:
    """Lists the processes that commit the value: all that may have registered before it was stored."""
    task: PublishTask = PUBLISH_TASK.decode(record.data)
    sent = Broadcast(processes(env), task.sent.message)
    return Next(record.step + 1, PUBLISH_TASK.encode(replace(task, sent=sent)))


async def end(_: RegionsEnv, record: Record) -> Outcome:
    """Ends with the number of processes that have the value."""
    task: PublishTask = PUBLISH_TASK.decode(record.data)
    return Done(b"%d" % len(task.sent.servers))


async def remove(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes a value: processes that register from now on do not get it."""
    name = PUBLISH_TASK.decode(record.data).name
    if name not in env.model.published:
        return Failed(f"no value {name!r} is published: 'regent published list' has those that are")

    def entered(_: Change) -> None:
        env.model.published.pop(name, None)

    return Effect(Done(), (Drop(PublishedRow, (name,)),), entered)


def _with_numbers(phase: Execute[RegionsEnv]) -> Execute[RegionsEnv]:
    """Has numbers for the messages of a phase before it runs."""

    async def run(env: RegionsEnv, record: Record) -> Outcome | Effect:
        await env.bus.ready(len(PUBLISH_TASK.decode(record.data).sent.servers))
        return await phase(env, record)

    return run


def _phase(what: str, undo: str = "") -> Phase[RegionsEnv]:
    def written(data: bytes, sent: Broadcast) -> bytes:
        return PUBLISH_TASK.encode(replace(PUBLISH_TASK.decode(data), sent=sent))

    return Phase(
        lambda env: BroadcastEnv(env.bus.responses, env.wall_ms),
        lambda env: env.bus.sending(what),
        (lambda env: env.bus.sending(undo)) if undo else None,
        last=False,
        how=ONES,
        place=Place(lambda data: PUBLISH_TASK.decode(data).sent, written),
    )


def _step(name: str, phase: Phase[RegionsEnv]) -> Step[RegionsEnv]:
    return Step(name, _with_numbers(phase.execute), phase.undo and _with_numbers(phase.undo))


def _demand(record: Record) -> Demand:
    """Demands the name: values of one name follow one another."""
    return Demand(Resource(Scope.SERVER, f"published {PUBLISH_TASK.decode(record.data).name}"), exclusive=True)


def _members(record: Record) -> Members:
    task: PublishTask = PUBLISH_TASK.decode(record.data)
    return Members(why=task.why, what=task.name)


PUBLISH: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (
        Step("begin", begin),
        _step("stage", _phase(protocol.STAGE, protocol.UNSTAGE)),
        Step("store", store),
        Step("list", listed),
        _step("commit", _phase(protocol.COMMIT)),
        Step("end", end),
    ),
    _demand,
    no_return=STORE,
    holds_locks=True,
    members=_members,
    admit=admit,
)
UNPUBLISH: Final[Kind[RegionsEnv]] = Kind(REMOVE, (Step("remove", remove),), _demand, members=_members)
