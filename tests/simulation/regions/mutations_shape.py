"""Plants bugs in splits and merges, and in what is kept for regions that refer to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind
from controller.regions import independence
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import discard, every, merge, reshaping, split
from controller.regions.procedures.messages import SHAPE, Shape
from controller.regions.routes import RouteLog
from metadata_store.catalog.rows import (
    Drop,
    DropRegions,
    HeirRow,
    NewRegions,
    ParentRow,
    Put,
    RegionRow,
    Reshape,
    Write,
)
from regent_agent.protocol import Owned
from state_machines.procedures.outcome import Done, Failed, Next
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Server
from state_machines.regions.model import Regions
from state_machines.regions.states import REPLACED, RegionState
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import Step, mutation, put_step


def _skipped(to: int) -> Callable[[Step], Step]:
    """Returns a change of a step that goes on to another one at once."""

    def changed(_: Step) -> Step:
        async def skips(_env: Any, record: Record) -> Next:
            return Next(to, record.data)

        return skips

    return changed


@mutation
def commit_a_split_before_its_region_is_closed(stack: ExitStack) -> None:
    """Gives the keys away while a server has them."""
    put_step(stack, split.SPLIT_REGION, "close", _skipped(split.COMMIT))


@mutation
def split_a_region_whose_log_waits(stack: ExitStack) -> None:
    """Takes a region whose server was fenced for one that was closed by its owner."""
    put_step(stack, split.SPLIT_REGION, "check", _skipped(split.COMMIT))


@mutation
def give_the_first_heir_the_id_of_its_parent(stack: ExitStack) -> None:
    """Lets one region live on with half of its keys."""

    async def splitting(env: RegionsEnv, region: Region, key: bytes, why: str) -> bytes:
        first = await env.reserve(1)
        return SHAPE.encode(Shape(region.table.name, (region.id,), (region.id, first), key, why))

    put(stack, split, "splitting", splitting)


@mutation
def give_heirs_ids_that_nobody_reserved(stack: ExitStack) -> None:
    """Takes the ids behind the highest one of a region."""

    async def splitting(env: RegionsEnv, region: Region, key: bytes, why: str) -> bytes:
        first = max(env.model.regions) + 1
        return SHAPE.encode(Shape(region.table.name, (region.id,), (first, first + 1), key, why))

    put(stack, split, "splitting", splitting)


@mutation
def undo_a_split_after_its_commit(stack: ExitStack) -> None:
    """Has the region come back beside its heirs."""

    async def undo(env: RegionsEnv, record: Record) -> Any:
        task: Shape = SHAPE.decode(record.data)
        parent = env.model.parents.get(task.parents[0])
        if parent is None:
            return await reshaping.undo(env, record)
        row = RegionRow(parent.id, parent.table, parent.start, parent.end, RegionState.OFFLINE, token=parent.token)
        return Effect(Done(), (NewRegions((row,)),), lambda _: None)

    steps = tuple(one._replace(undo=undo) if one.name == "open" else one for one in split.SPLIT_REGION.steps)
    _put_kind(stack, split.SPLIT_REGION._replace(steps=steps, no_return=len(steps)))


def _put_kind(stack: ExitStack, kind: Kind[Any]) -> None:
    put(stack, every, "KINDS", tuple(kind if one.name == kind.name else one for one in every.KINDS))


@mutation
def leave_the_parent_in_its_table(stack: ExitStack) -> None:
    """Stores the heirs, and not that their parent is gone."""

    def parts(row: Reshape) -> tuple[Write, ...]:
        return (NewRegions(row.heirs), *map(Put, row.parents), *map(Put, row.sources))

    put(stack, Reshape, "parts", property(parts))


@mutation
def store_parent_and_heirs_in_two_writes(stack: ExitStack) -> None:
    """Removes the parent in the commit, and inserts the second heir later."""

    def parts(row: Reshape) -> tuple[Write, ...]:
        gone = DropRegions(tuple(one.id for one in row.parents))
        return (gone, NewRegions(row.heirs[:1]), *map(Put, row.parents), *map(Put, row.sources))

    put(stack, Reshape, "parts", property(parts))


@mutation
def lose_the_end_of_the_second_heir(stack: ExitStack) -> None:
    """Has the second heir end where its table ends."""

    def halves(region: Region, key: bytes) -> Any:
        return (region.start, key), (key, b"")

    put(stack, reshaping, "halves", halves)


@mutation
def open_heirs_as_empty_ones(stack: ExitStack) -> None:
    """Commits heirs without what they refer to."""
    commit = reshaping.commit

    def changed(_: Step) -> Step:
        async def forgetful(env: RegionsEnv, record: Record) -> Any:
            task: Shape = SHAPE.decode(record.data)
            return await commit(env, replace(record, data=SHAPE.encode(replace(task, inherits=False))))

        return forgetful

    put_step(stack, split.SPLIT_REGION, "commit", changed)


@mutation
def discard_a_parent_at_the_first_word(stack: ExitStack) -> None:
    """Takes the independence of one heir for that of all."""

    def due(model: Regions) -> list[ParentRow]:
        needed = discard.dependents(model)
        return [one for one in model.parents.values() if len(needed.get(one.id, ())) < len(one.heirs)]

    put(stack, discard, "due", due)


@mutation
def discard_parents_at_once(stack: ExitStack) -> None:
    """Discards the data of regions as soon as others have their keys."""

    def due(model: Regions) -> list[ParentRow]:
        return list(model.parents.values())

    put(stack, discard, "due", due)


@mutation
def believe_independence_of_former_opens(stack: ExitStack) -> None:
    """Takes the word of a server about an open that is over."""
    take = independence.take

    async def believing(env: RegionsEnv, write: Any, server: Server, regions: Sequence[Owned]) -> list[int]:
        known = env.model.regions
        found = [Owned(one.region, known[one.region].token) for one in regions if one.region in known]
        return await take(env, write, server, found)

    put(stack, independence, "take", believing)


@mutation
def believe_independence_of_former_owners(stack: ExitStack) -> None:
    """Takes the word of any server about a region."""

    async def believing(
        env: RegionsEnv, write: Callable[[Sequence[Write]], Awaitable[None]], _: Server, regions: Sequence[Owned]
    ) -> list[int]:
        for one in regions:
            if one.region in env.model.sources:
                await write((Drop(HeirRow, (one.region,)),))
                env.model.sources.pop(one.region, None)
        return []

    put(stack, independence, "take", believing)


@mutation
def merge_regions_that_are_no_neighbours(stack: ExitStack) -> None:
    """Merges whatever is asked for."""

    def none(_: Sequence[Region]) -> None:
        return None

    put(stack, merge, "neighbours_problem", none)
    put(stack, reshaping, "apart_problem", none)


@mutation
def merge_regions_of_two_servers(stack: ExitStack) -> None:
    """Closes regions where they are, and has no region moved to the server of the others."""

    def changed(step: Step) -> Step:
        async def apart(env: RegionsEnv, record: Record) -> Any:
            task: Shape = SHAPE.decode(record.data)
            found = reshaping.ready(env, record, task)
            if isinstance(found, Failed) or any(
                one.server is None or one.state is not RegionState.OPEN for one in found
            ):
                return await step(env, record)
            server = found[0].server
            assert server is not None
            return reshaping.leaves(env, record, replace(task, server=server.name, tries=0), found, merge.CLOSE)

        return apart

    put_step(stack, merge.MERGE_REGIONS, "move", changed)


@mutation
def keep_the_routes_of_parents(stack: ExitStack) -> None:
    """Tells followers of heirs, and not that their parents are gone."""
    told = RouteLog.changed

    def changed(log: RouteLog, region: Region) -> None:
        if region.state not in REPLACED:
            told(log, region)

    put(stack, RouteLog, "changed", changed)
