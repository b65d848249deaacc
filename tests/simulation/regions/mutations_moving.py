"""Plants bugs in the procedures of regions and tables, and in how a daemon goes on with them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from controller.procedures.kinds import Effect
from controller.regions import entering
from controller.regions.procedures import assign, every, messages, tables
from controller.regions.procedures.messages import TRANSIT, Transit
from controller.regions.server_lists import Claimants
from metadata_store.catalog.rows import Content
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Done, Next
from state_machines.procedures.record import Record
from state_machines.procedures.scheduler import Scheduler
from state_machines.regions.entities import Region
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, TableState
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


@mutation
def choose_anew_after_a_failover(stack: ExitStack) -> None:
    """Sends an open to another server where the first one may have done it: the choice is not kept (HBASE-23035)."""

    def changed(step: Step) -> Step:
        async def dispatch(env: Any, record: Record) -> Any:
            task: Transit = TRANSIT.decode(record.data)
            region = env.model.regions.get(task.region)
            known = env.dispatcher.expects(record.pid) or env.results.get(record.pid)
            if known is None and record.submitted_ms < env.wall_ms() - 500 and region is not None:
                return assign._left(env, record, region, task, RegionState.OPENING)
            return await step(env, record)

        return dispatch

    put_step(stack, assign.ASSIGN, "dispatch", changed)


@mutation
def keep_the_token_of_the_first_server(stack: ExitStack) -> None:
    """Opens a region with the same token at each server that is tried."""

    async def pid(_env: Any, record: Record, _region: Region, _task: Transit) -> int:
        return record.pid

    put(stack, assign, "_new_token", pid)


@mutation
def take_regions_of_other_procedures(stack: ExitStack) -> None:
    """Attaches a procedure to a region that another one moves (HBASE-23594)."""

    def take(model: Regions, region: Region, pid: int, _: Collection[int] = ()) -> bool:
        model.attach(region, pid)
        return True

    put(stack, Regions, "take", take)


@mutation
def store_an_owner_later(stack: ExitStack) -> None:
    """Ends an assign without the region's row."""
    opened = assign._opened

    def bare(*args: Any) -> Effect:
        return replace(opened(*args), rows=())

    put(stack, assign, "_opened", bare)


@mutation
def restore_failed_opens_as_open(stack: ExitStack) -> None:
    """Takes a region that no server could open for an open one after a failover (HBASE-29364)."""
    enter = entering.enter

    async def entered(model: Regions, content: Content, now_ms: int) -> None:
        await enter(model, content, now_ms)
        for region in model.regions.values():
            if region.state is RegionState.FAILED_OPEN:
                region.state = RegionState.OPEN

    put(stack, entering, "enter", entered)


def believe_rows_after_a_failover(stack: ExitStack) -> None:
    """Gives a region away that a server may have by a procedure of which no record is left.

    Seeds seldom come to it: a story of its own shows it.
    """

    def free(_: Claimants, _region: Region) -> bool:
        return False

    put(stack, Claimants, "is_held", free)


@mutation
def restore_no_locks(stack: ExitStack) -> None:
    """Begins a term without the locks that procedures held (HBASE-20846)."""

    def nothing(_: Scheduler, _entry: object) -> None:
        """Locks nothing."""

    put(stack, Scheduler, "restore", nothing)


@mutation
def change_a_table_by_two_at_once(stack: ExitStack) -> None:
    """Shares the lock of a table between its changes (HBASE-28683)."""

    def shared(name: str) -> Demand:
        return messages.share_of_table(name)

    put(stack, messages, "lock_of_table", shared)


@mutation
def disable_a_table_with_regions_open(stack: ExitStack) -> None:
    """Enters that a table is disabled without having its regions closed."""

    def changed(_: Step) -> Step:
        async def close_regions(_env: Any, record: Record) -> Next:
            return Next(record.step + 1, record.data)

        return close_regions

    async def disabled(env: Any, record: Record) -> Any:
        return tables.stated(env, record, TableState.DISABLED, Done())

    put_step(stack, tables.DISABLE, "close", changed)
    [kind] = [one for one in every.KINDS if one.name == tables.DISABLE.name]
    put_step(stack, kind, "end", lambda _: disabled)
