"""Assign or close many regions of a table: one child for each, planned together.

They are parts of a change of the table or of a crash; the share of the table's lock that they hold keeps other changes
out while their children live. The next batch begins once fewer regions are in transition than the settings allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, messages
from controller.regions.procedures.messages import MANY, Many
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Children, Done, Outcome, Wait
from state_machines.procedures.record import Record, child
from state_machines.regions.entities import Region, Table
from state_machines.regions.placement import planned
from state_machines.regions.states import IN_TRANSITION, RegionState, ServerState

ASSIGN_MANY: Final = "assign_many"
CLOSE_MANY: Final = "close_many"
TOGETHER: Final = 400
"""Regions of one batch: their records fit into one transaction."""
BATCHES_MAX: Final = 400
"""Batches that one step of a table's change begins: their records fit into one transaction, too."""
PAUSE_MS: Final = 100
S = RegionState
CLOSED_FROM: Final = IN_TRANSITION | {S.OPEN}
"""States in which a server may have a region, or which no region of a disabled table keeps."""


def batches(kind: str, table: Table, why: str, begun: int) -> tuple[tuple[Record, ...], int]:
    """Returns procedures for regions of a table from position ``begun`` on, and the position behind them.

    The table's list does not change meanwhile.
    """
    last = min(len(table.regions), begun + BATCHES_MAX * TOGETHER)
    firsts = range(begun, last, TOGETHER)
    return tuple(child(kind, MANY.encode(Many(table.name, why, first, TOGETHER))) for first in firsts), last


def of_regions(kind: str, regions: Sequence[Region], why: str) -> Iterator[Record]:
    """Yields the procedures for some regions of one table."""
    for first in range(0, len(regions), TOGETHER):
        ids = tuple(one.id for one in regions[first : first + TOGETHER])
        yield child(kind, MANY.encode(Many(regions[0].table.name, why, ids=ids)))


def of_ids(kind: str, regions: Sequence[Region], why: str) -> Record:
    """Returns the procedure for regions of one table that an operator has named; it waits as those of a table do."""
    ids = tuple(one.id for one in regions)
    return child(kind, MANY.encode(Many(regions[0].table.name, why, ids=ids, waits=True)))


async def assign_all(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Plans, and has the regions assigned that need it and that no other procedure moves."""
    task: Many = MANY.decode(record.data)
    if len(env.model.transit) >= env.options.transit_max and (task.waits or not task.ids):  # a crash waits for no table
        return Wait(env.wall_ms() + PAUSE_MS, record.data, durable=False)
    regions = _taken(env, task, record, lambda one: assign.unneeded(env, one) is None)
    servers = env.servers()
    if not servers or _has_apart(env, regions):
        children = tuple(assign.assigned(one, task.why, None) for one in regions)
        born = Children(children, record.step + 1, record.data, rest=_rest(env, task, regions))
        return Effect(born, (), lambda change: _given(env, change, regions))
    wishes = [assign.wish(env, one) for one in regions]
    plan = planned(env.placement, wishes, servers, env.prompt(servers), env.draw, env.model.marks.weights)
    children = tuple(assign.assigned(one, task.why, server) for one, server in zip(regions, plan, strict=True))

    env.expect(record.pid, Counter(plan))

    def entered(change: Change) -> None:
        env.expected(record.pid)
        now_ms = env.now_ms()
        for pid, region, server in zip(_born(change), regions, plan, strict=False):
            assign.begun(env, region, pid, server, pid, now_ms)
            if server.state is ServerState.ONLINE:
                env.dispatcher.send(server, assign.opening(env, pid, region, pid))
            else:
                env.wake_soon(pid)

    rest = _rest(env, task, regions)
    return Effect(Children(children, record.step + 1, record.data, asleep=True, rest=rest), (), entered)


def _has_apart(env: RegionsEnv, regions: Sequence[Region]) -> bool:
    """Checks whether one of the regions waits, is closed first, has sources, or needs a higher token than its pid."""
    lists, claimants, sources = env.contradictions, env.claimants, env.model.sources
    if sources and any(one.id in sources for one in regions):
        return True
    if lists and any(map(lists.is_below, regions)):
        return True
    return (claimants.holds_any and any(map(claimants.is_held, regions))) or any(map(assign.closes_first, regions))


def _taken(env: RegionsEnv, task: Many, record: Record, needs: Callable[[Region], bool]) -> list[Region]:
    """Attaches the batch to regions until their children are stored, so that no other procedure moves them.

    A batch whose children did not all fit has its last regions already: it lets go what needs no child any more.
    """
    found = []
    for one in _left(env, task):
        if not needs(one):
            env.model.detach(one, record.pid)
        elif env.model.take(one, record.pid):
            found.append(one)
    return found


def _given(env: RegionsEnv, change: Change, regions: Sequence[Region]) -> None:
    """Enters that children that choose their server by themselves have the regions."""
    for pid, region in zip(_born(change), regions, strict=False):
        env.model.attach(region, pid)


def _born(change: Change) -> list[int]:
    """Returns the children of a change, in the order of their regions: all of them, or the first that fit."""
    return [put.pid for put in change.puts[1:]]


def _rest(env: RegionsEnv, task: Many, regions: Sequence[Region]) -> Callable[[int], bytes]:
    """Returns what makes the message with which the step is repeated for the regions behind the first ones."""

    def rest(count: int) -> bytes:
        first = regions[count]
        position = task.ids.index(first.id) if task.ids else _regions(env, task).index(first)
        return MANY.encode(replace(task, begun=position))

    return rest


async def close_all(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has the regions closed that are open, or on their way."""
    task: Many = MANY.decode(record.data)
    if len(env.model.transit) >= env.options.transit_max:
        return Wait(env.wall_ms() + PAUSE_MS, record.data, durable=False)
    regions = _taken(env, task, record, lambda one: one.state in CLOSED_FROM)
    children = tuple(close.closed(one, task.why) for one in regions)

    def entered(change: Change) -> None:
        for pid, region in zip(_born(change), regions, strict=False):
            env.model.attach(region, pid)
            server = region.server
            if server is None:
                continue
            close.begun(env, region, pid, server)
            if server.state is ServerState.ONLINE:
                env.dispatcher.send(server, protocol.Close(pid, region.id, close.token_of(region)))
            else:
                env.wake_soon(pid)

    rest = _rest(env, task, regions)
    return Effect(Children(children, record.step + 1, record.data, asleep=True, rest=rest), (), entered)


async def counted(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with the number of regions that are not as they were to be."""
    task: Many = MANY.decode(record.data)
    wanted = S.OPEN if record.kind == ASSIGN_MANY else S.CLOSED
    return Done(b"%d" % sum(one.state is not wanted for one in _regions(env, task)))


def _regions(env: RegionsEnv, task: Many, begun: int = 0) -> list[Region]:
    if task.ids:
        return [found for one in task.ids[begun:] if (found := env.model.regions.get(one)) is not None]
    table = env.model.tables.get(task.table)
    return [] if table is None else table.regions[task.first + begun : task.first + task.count]


def _left(env: RegionsEnv, task: Many) -> list[Region]:
    """Returns the regions that no child was about yet. One that was opened may have been split since, and be gone."""
    return _regions(env, task, task.begun)


def _kind(name: str, step: Step[RegionsEnv]) -> Kind[RegionsEnv]:
    return Kind(
        name,
        (step, Step("count", counted)),
        lambda record: messages.share_of_table(MANY.decode(record.data).table),
        no_return=0,
        holds_locks=True,
        members=messages.of_many,
    )


ASSIGN_REGIONS: Final = _kind(ASSIGN_MANY, Step("assign", assign_all))
CLOSE_REGIONS: Final = _kind(CLOSE_MANY, Step("close", close_all))
