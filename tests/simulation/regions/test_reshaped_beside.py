"""Splits and merges beside moves, closes and each other: one after the other by the locks of the regions they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise, product
from typing import Final

import pytest

from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, splits
from tests.kit.regions.world import at_rest, creates, ended, moves, regions_of, running, serving, transits, virtual

S = RegionState
WRITES_MAX: Final = 100
Begins = Callable[[RegionsTerm], Awaitable[int]]


class Calling(MemoryRegionStore):
    """A store that calls back after one of the next writes."""

    def __init__(self, disk: RegionDisk) -> None:
        super().__init__(disk)
        self.left = -1
        self.then: Callable[[], object] = bool

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        await super().write(puts, deletes, rows)
        self.left -= 1
        if self.left == 0:
            self.then()


async def split_first(term: RegionsTerm) -> int:
    return await splits(term, regions_of(term)[0], b"\x11")


async def merge_all(term: RegionsTerm) -> int:
    return await merges(term, regions_of(term)[:2])


async def move_first(term: RegionsTerm) -> int:
    region = regions_of(term)[0]
    return await moves(term, region, "b" if str(region.server) == "a,1" else "a")


async def close_first(term: RegionsTerm) -> int:
    return await transits(term, "close", regions_of(term)[0])


RESHAPES: Final[dict[str, Begins]] = {"split": split_first, "merge": merge_all}
BESIDE: Final[dict[str, Begins]] = {"move": move_first, "close": close_first, **RESHAPES}
"""Each is about the first region of the table."""


async def played(first: Begins, beside: Begins, writes: int) -> tuple[bool, list[Record], list[S]]:
    """Begins one after so many writes of the other, and waits for both.

    Returns whether the other had ended by then, the records, and the states of the regions, which lie side by side.
    """
    stores: list[Calling] = []

    def store(disk: RegionDisk) -> Calling:
        stores.append(Calling(disk))
        return stores[-1]

    async with running(RegionDisk(), store=store) as term, serving(*(servers := [Inheriting(term, n) for n in "ab"])):
        await ended(term, creates(term, regions=2))
        begun: list[Awaitable[int]] = []
        [opened] = stores
        opened.left = writes
        opened.then = lambda: begun.append(asyncio.ensure_future(beside(term)))
        pid = await first(term)
        if not writes:
            opened.then()
        one = await term.engine.result(pid)
        was_over = not begun
        if was_over:
            opened.then()
        other = await term.engine.result(await begun[0])
        await at_rest(term)
        regions = regions_of(term)
        assert (regions[0].start, regions[-1].end) == (b"", b"")
        assert all(before.end == after.start for before, after in pairwise(regions))
        has = {region: (server.name, token) for server in servers for region, token in server.has.items()}
        assert sum(len(server.has) for server in servers) == len(has)
        assert has == {one.id: (one.server.name, one.token) for one in regions if one.server is not None}
        return was_over, [one, other], [one.state for one in regions]


@pytest.mark.seed("S1-21", "S1-78")
@pytest.mark.parametrize(("first", "beside"), [*product(RESHAPES, BESIDE), ("move", "split"), ("close", "merge")])
def test_what_begins_after_any_write_of_another_leaves_each_key_in_one_region(first: str, beside: str) -> None:
    refused = 0

    @virtual
    async def story() -> None:
        nonlocal refused
        for writes in range(WRITES_MAX):
            was_over, records, states = await played(BESIDE[first], BESIDE[beside], writes)
            assert records[0].state is State.SUCCESS, records[0].error
            closes = "close" in (first, beside)
            assert set(states) <= ({S.OPEN, S.CLOSED} if closes else {S.OPEN})
            assert len(states) == 2 + sum(
                (1 if name == "split" else -1)
                for name, record in zip((first, beside), records, strict=True)
                if name in RESHAPES and record.state is State.SUCCESS
            )
            if records[1].state is not State.SUCCESS:
                assert beside in RESHAPES
                assert records[1].error
                refused += 1
            if was_over:
                return
        raise AssertionError("it never ends")

    story()
    assert refused or not {first, beside} <= RESHAPES.keys(), "one finds the region gone"
