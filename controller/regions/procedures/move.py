"""Move and reopen: a region is closed and then opened, one procedure after the other, with its lock held throughout."""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import assign, close, messages
from controller.regions.procedures.messages import MOVE, Move
from state_machines.procedures.outcome import Children, Done, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState, ServerState

NAME: Final = "move"


async def close_it(env: RegionsEnv, record: Record) -> Outcome:
    """Has the region closed."""
    task: Move = MOVE.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        return Done(b"the region is gone")
    server = region.server
    if server is not None and server.name == task.to and server.state is ServerState.ONLINE and not task.reopens:
        return Done(b"it is there already")
    if not env.model.take(region, record.pid, record.ancestors):
        return Done(b"pid %d has the region" % region.pid)
    to = server.name if task.reopens and server is not None else task.to
    data = MOVE.encode(Move(task.region, task.table, to, task.why, task.reopens))
    return Children((close.closed(region, task.why, returns=True),), record.step + 1, data)


async def open_it(env: RegionsEnv, record: Record) -> Outcome:
    """Has the region opened."""
    task: Move = MOVE.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is None:
        return Done(b"the region is gone")
    return Children((assign.assigned(region, task.why, None, to=task.to),), record.step + 1, record.data)


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with the region's state; one that is open elsewhere rests from now on."""
    task: Move = MOVE.decode(record.data)
    region = env.model.regions.get(task.region)
    if region is not None and region.state is RegionState.OPEN and not task.reopens:
        env.cooldown.moved(region.id, env.now_ms())
    if region is None:
        return Done(b"the region is gone")
    env.model.detach(region, record.pid)
    result = region.state.name.lower()
    wanted = "" if task.reopens else task.to
    if wanted and region.server is not None and region.server.name != wanted:
        result += f" at {region.server}: {wanted} could not get it, see 'regent servers list'"
    return Done(result.encode())


MOVE_REGION: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("close", close_it), Step("open", open_it), Step("end", end)),
    lambda record: messages.lock_of_region((task := MOVE.decode(record.data)).table, task.region),
    no_return=0,
    holds_locks=True,
    members=messages.of_move,
)
