"""Splits and merges that a copy of the store had under way: their heirs may have had data since the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from controller.regions.environment import Options
from controller.regions.procedures.messages import SHAPE, Shape
from controller.regions.term import RegionsTerm
from metadata_store.records.port import NOTHING_SEEN, Above
from regent_agent.protocol import INHERIT
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from tests.kit.regions.shapes import merges, splits
from tests.kit.regions.term import WAIT_S, stage
from tests.kit.regions.world import regions_of

S = RegionState
OPTIONS = Options(lease_ms=1_000, startup_wait_ms=0)
Reshapes = Callable[[RegionsTerm, Sequence[Region]], Awaitable[int]]


async def split(term: RegionsTerm, regions: Sequence[Region]) -> int:
    return await splits(term, regions[0], regions[0].end[:-1])


async def result(term: RegionsTerm, pid: int) -> Record:
    return await asyncio.wait_for(term.engine.result(pid), WAIT_S)


async def under_way(folder: Path, reshapes: Reshapes) -> int:
    """Leaves a store in which the regions of table t are being closed, so that others get their keys."""
    async with stage(folder, options=OPTIONS) as before:
        server = await before.join("s1", features=[INHERIT])
        await before.create("t", 2)
        server.answers = False
        regions = regions_of(before.term)
        pid = await reshapes(before.term, regions)
        await before.until(lambda: regions[0].state is S.CLOSING)
    return pid


@pytest.mark.parametrize("reshapes", [split, merges])
async def test_regions_of_a_restored_store_keep_their_keys_until_others_with_new_ids_get_them(
    tmp_path: Path, reshapes: Reshapes
) -> None:
    """A service that has stored that an heir is independent does not read what the restored parent has got since."""
    pid = await under_way(tmp_path, reshapes)
    async with stage(tmp_path, options=OPTIONS, above=Above(9, 5_000)) as after:
        regions = list(regions_of(after.term))
        await after.join("s1", 2, features=[INHERIT])
        ended = await result(after.term, pid)
        assert ended.state is State.ROLLEDBACK
        assert ended.error.startswith("the store was restored from a copy, and #")
        assert ended.error.endswith(" may have had data since: begin it again")
        assert regions_of(after.term) == regions
        await after.until(lambda: all(one.state is S.OPEN for one in regions))
        again = await result(after.term, await reshapes(after.term, regions))
        assert again.state is State.SUCCESS
        new = [one for one in regions_of(after.term) if one not in regions]
        assert new
        assert all(one.id > 5_000 for one in new)


@pytest.mark.parametrize("reshapes", [split, merges])
async def test_regions_of_any_other_store_are_split_and_merged_on_after_a_failover(
    tmp_path: Path, reshapes: Reshapes
) -> None:
    pid = await under_way(tmp_path, reshapes)
    async with stage(tmp_path, options=OPTIONS, above=NOTHING_SEEN) as after:
        await after.join("s1", 2, features=[INHERIT])
        assert (await result(after.term, pid)).state is State.SUCCESS


@pytest.mark.parametrize("reshapes", [split, merges])
@pytest.mark.parametrize("incomplete", [False, True])
async def test_a_server_that_lists_an_heir_has_it_undone_where_no_number_tells_of_the_copy(
    tmp_path: Path, reshapes: Reshapes, incomplete: bool
) -> None:
    pid = await under_way(tmp_path, reshapes)
    async with stage(tmp_path, options=OPTIONS, above=NOTHING_SEEN) as after:
        task: Shape = SHAPE.decode(after.term.engine.records[pid].data)
        lists = after.term.env.contradictions
        if incomplete:
            lists.incomplete = True
        else:
            lists.note(task.heirs[-1], None, 9_999, "s2,1")
        await after.join("s1", 2, features=[INHERIT])
        ended = await result(after.term, pid)
        assert ended.state is State.ROLLEDBACK
        assert ended.error.startswith("the store was restored from a copy, and #")
