"""Work on all regions of a table: each open region's server does it, and all are awaited (HBase ``OnePhase``).

It goes on in the order of keys, so that regions may be split, merged and moved meanwhile. Where the work fails on one
region, nothing more is begun, and what others have begun is not awaited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Kind, Step
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages, region_work
from controller.regions.procedures.messages import TABLE_WORK, TableWork
from state_machines.procedures.outcome import Children, Done, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Table, start_of
from state_machines.regions.states import IN_TRANSITION, WANTED, RegionState

NAME: Final = "table_work"
TOGETHER: Final = 400
"""Regions whose work goes on at the same time."""
LOOKED_MAX: Final = 20_000
"""Regions at which one step looks."""


async def work(env: RegionsEnv, record: Record) -> Outcome:
    """Has work done on the next regions; ends with their number once there are no more."""
    task: TableWork = TABLE_WORK.decode(record.data)
    table = env.model.tables.get(task.table)
    if table is None:
        return Failed(f"table {task.table} does not exist: see 'regent tables list'")
    if table.state not in WANTED:
        return Failed(f"table {table.name} is {table.state.name.lower()}: 'regent tables enable {table.name}' first")
    looked = [] if task.is_last else list(_behind(table, task))
    some = [one for one in looked if one.state is RegionState.OPEN or one.state in IN_TRANSITION][:TOGETHER]
    if not some and len(looked) < LOOKED_MAX:
        return Done(b"%d" % task.regions)
    after = _after(task, some or looked)
    children = tuple(
        region_work.working(one, task.what, task.data, why=task.why, tries_max=task.tries_max) for one in some
    )
    return Children(
        children,
        record.step,
        TABLE_WORK.encode(replace(after, regions=task.regions + len(some))),
        rest=lambda count: TABLE_WORK.encode(replace(_after(task, some[:count]), regions=task.regions + count)),
    )


def _behind(table: Table, task: TableWork) -> Iterator[Region]:
    """Returns the next regions, in the order of their keys; the first may be one that was merged of others meanwhile.

    Work on a part of its keys was done then; done twice, it is as done once.
    """
    first = bisect_left(table.regions, task.begun, key=start_of)
    before = table.regions[first - 1] if first else None
    if before is not None and (not before.end or before.end > task.begun):
        first -= 1
    return islice(table.regions, first, first + LOOKED_MAX)


def _after(task: TableWork, some: Sequence[Region]) -> TableWork:
    """Returns the message that goes on behind some regions; behind the last key there is none."""
    return replace(task, begun=some[-1].end, is_last=not some[-1].end)


TABLE_WORKS: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("work", work),),
    lambda record: messages.share_of_table(TABLE_WORK.decode(record.data).table),
    holds_locks=True,
    members=messages.of_table_work,
)
