"""Plants bugs in changes of whole tables: truncations, clones, options, snapshots, and what these lock."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from controller.procedures.kinds import Effect
from controller.regions.procedures import (
    assign,
    clones,
    every,
    messages,
    modification,
    move,
    region_work,
    snapshots,
    tables,
    truncation,
)
from controller.regions.procedures.messages import (
    MOVE,
    REGION_WORK,
    SNAPSHOT_TASK,
    TABLE_TASK,
    Move,
    TableTask,
    Transit,
)
from metadata_store.catalog.rows import DropRegions, HeirRow, Put
from state_machines.procedures.locks import Demand
from state_machines.procedures.outcome import Children, Done, Next
from state_machines.procedures.record import Record, child
from state_machines.regions.entities import Region, Table
from state_machines.regions.model import Regions
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


@mutation
def drop_the_regions_that_are_truncated_last(stack: ExitStack) -> None:
    """Stores new regions of a table while those before them are there."""

    def changed(step: Step) -> Step:
        async def rows(env: Any, record: Record) -> Any:
            found = await step(env, record)
            if not isinstance(found, Effect):
                return found
            kept = tuple(one for one in found.rows if not isinstance(one, DropRegions))
            return Effect(found.outcome, kept, found.entered)

        return rows

    put_step(stack, truncation.TRUNCATE_TABLE, "rows", changed)


@mutation
def delete_a_table_that_clones_need(stack: ExitStack) -> None:
    """Has the data of a table go while regions of another one begin in it."""

    def none(_model: Regions, _table: Table) -> None:
        return None

    put(stack, tables, "needed_by", none)


@mutation
def delete_a_snapshot_that_clones_need(stack: ExitStack) -> None:
    """Has the data of a snapshot go while regions begin in it."""

    def none(_model: Regions, _name: str) -> None:
        return None

    put(stack, snapshots, "snapshot_needed_by", none)


@mutation
def clone_without_sources(stack: ExitStack) -> None:
    """Makes the regions of a clone, and not what they refer to."""

    def changed(step: Step) -> Step:
        async def metadata(env: Any, record: Record) -> Any:
            found = await step(env, record)
            if not isinstance(found, Effect) or found.entered is None:
                return found
            entered = found.entered

            def forgets(change: Any) -> None:
                entered(change)
                for one in found.rows:
                    if isinstance(one, Put) and isinstance(one.row, HeirRow):
                        env.model.sources.pop(one.row.id, None)

            return Effect(found.outcome, found.rows, forgets)

        return metadata

    put_step(stack, clones.CLONE_TABLE, "metadata", changed)


@mutation
def reopen_regions_by_their_place(stack: ExitStack) -> None:
    """Opens the regions of a table again one place after the other, once, whatever moves meanwhile (HBASE-21330)."""

    def changed(_: Step) -> Step:
        async def reopen(env: Any, record: Record) -> Any:
            task: TableTask = TABLE_TASK.decode(record.data)
            some = env.model.tables[task.table].regions[task.begun : task.begun + 2]
            if not some:
                return Done()
            data = TABLE_TASK.encode(replace(task, begun=task.begun + 2))
            moves = [Move(one.id, task.table, "", "options", reopens=True) for one in some if not one.pid]
            children = tuple(child(move.NAME, MOVE.encode(one)) for one in moves)
            return Children(children, record.step, data) if children else Next(record.step, data)

        return reopen

    put_step(stack, modification.MODIFY_TABLE, "reopen", changed)


@mutation
def store_the_version_that_a_table_has_by_now(stack: ExitStack) -> None:
    """Takes a region that was opened with former options for one with the present ones."""
    opened = assign._opened

    def forgetful(env: Any, record: Record, region: Region, task: Transit, sequence: int) -> Effect:
        return opened(env, record, region, replace(task, version=region.table.version), sequence)

    put(stack, assign, "_opened", forgetful)


@mutation
def make_snapshots_while_regions_are_split(stack: ExitStack) -> None:
    """Has a snapshot not lock which regions its table has."""

    def demand(record: Record) -> Demand:
        task = SNAPSHOT_TASK.decode(record.data)
        name = messages.lock_of_snapshot(task.name, exclusive=True)
        return messages.share_of_table(task.table)._replace(also=(name,))

    kind = snapshots.SNAPSHOT_TABLE._replace(demand=demand)
    put(stack, every, "KINDS", tuple(kind if one.name == kind.name else one for one in every.KINDS))


@mutation
def complete_a_snapshot_without_its_regions(stack: ExitStack) -> None:
    """Lists regions that have staged nothing."""

    def changed(_: Step) -> Step:
        async def stage(_env: Any, record: Record) -> Next:
            return Next(snapshots.LIST, record.data)

        return stage

    put_step(stack, snapshots.SNAPSHOT_TABLE, "stage", changed)


@mutation
def let_a_crash_assign_regions_that_work_has(stack: ExitStack) -> None:
    """Has work on a region not hold it."""

    def hold(_model: Regions, _region: Any, _pid: int, _ancestors: Any = ()) -> bool:
        return True

    put(stack, Regions, "hold", hold)


@mutation
def let_regions_move_while_work_goes_on(stack: ExitStack) -> None:
    """Has work on a region lock its table alone, shared, and not hold the region."""

    def demand(record: Record) -> Demand:
        return messages.share_of_table(REGION_WORK.decode(record.data).table)

    let_a_crash_assign_regions_that_work_has(stack)
    kind = region_work.REGION_WORKS._replace(demand=demand)
    put(stack, every, "KINDS", tuple(kind if one.name == kind.name else one for one in every.KINDS))
