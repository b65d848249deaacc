"""What each primitive makes of a region, by the state in which it finds it: the full product, written down by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Final

import pytest

from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import Owner
from regent_agent.protocol import Owned, Refused, Registered
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.shapes import Inheriting, merges, splits
from tests.kit.regions.world import (
    at_rest,
    changes,
    creates,
    ended,
    moves,
    regions_of,
    running,
    serving,
    transits,
    virtual,
)

PRIMITIVES: Final[dict[str, Callable[[RegionsTerm, Region], Awaitable[int]]]] = {
    "assign": lambda term, region: transits(term, "assign", region),
    "close": lambda term, region: transits(term, "close", region),
    "move": lambda term, region: moves(term, region, "b"),
    "split": lambda term, region: splits(term, region, b"\x11"),
    "merge": lambda term, region: merges(term, regions_of(term)),
}
ENDS: Final = {
    "OPEN": "OPEN CLOSED OPEN SPLIT MERGED",
    "CLOSED": "OPEN CLOSED OPEN CLOSED CLOSED",
    "FAILED_OPEN": "OPEN FAILED_OPEN OPEN FAILED_OPEN FAILED_OPEN",
    "OFFLINE": "OFFLINE CLOSED OFFLINE OFFLINE OFFLINE",
}
"""The state at the end, by the state before it; a region is OFFLINE here because its table is disabled."""
OWNERS: Final = {
    "OPEN": "a - b - -",
    "CLOSED": "b - b - -",
    "FAILED_OPEN": "b - b - -",
    "OFFLINE": "- - - - -",
}
"""Names of owners: a has the table's other region, so that b gets what has no owner."""
SAYS: Final = {
    ("OPEN", "assign"): "it is open already",
    ("CLOSED", "close"): "it is closed already",
    ("FAILED_OPEN", "close"): "it is failed_open already",
    ("OFFLINE", "assign"): "its table is disabled",
    ("OPEN", "move"): "open",
    ("CLOSED", "move"): "open",
    ("FAILED_OPEN", "move"): "open",
    ("OFFLINE", "move"): "offline",
    ("CLOSED", "split"): "is CLOSED, and must be OPEN",
    ("CLOSED", "merge"): "is CLOSED, and must be OPEN",
    ("FAILED_OPEN", "split"): "is FAILED_OPEN, and must be OPEN",
    ("FAILED_OPEN", "merge"): "is FAILED_OPEN, and must be OPEN",
    ("OFFLINE", "split"): "table t is disabled, and must be enabled",
    ("OFFLINE", "merge"): "table t is disabled, and must be enabled",
}
"""Results and refusals, or a part of them; what is not here is done as it was wanted."""


class Listing(Inheriting):
    """A server that registers with what it has."""

    async def register(self, *owned: Owned) -> Registered | Refused:
        return await super().register(*owned, *(Owned(*one) for one in self.has.items()))


def test_every_state_that_the_catalog_has_for_a_region_is_here() -> None:
    assert set(ENDS) == set(OWNERS) == {"OPEN", "CLOSED", "FAILED_OPEN", "OFFLINE"}


@pytest.mark.seed("S1-31", "S1-64", "S1-65")
@pytest.mark.parametrize(("before", "primitive"), list(product(ENDS, PRIMITIVES)))
@virtual
async def test_a_primitive_leaves_memory_catalog_and_servers_as_written_down(before: str, primitive: str) -> None:
    at = list(PRIMITIVES).index(primitive)
    after, owner = ENDS[before].split()[at], OWNERS[before].split()[at].strip("-")
    disk = RegionDisk()
    async with running(disk) as term, serving(first := Listing(term, "a")):
        await ended(term, creates(term, regions=2))
        if before == "OFFLINE":
            await ended(term, changes(term, "disable"))
    row, neighbour = disk.regions.values()
    if before != "OPEN":
        first.has.pop(row.id, None)
        disk.put(Owner(row.id, RegionState[before], "", 0, row.token, row.sequence))
    async with running(disk) as term:
        first.term, second = term, Listing(term, "b")
        async with serving(first, second):
            region = regions_of(term)[0]
            record = await term.engine.result(await PRIMITIVES[primitive](term, region))
            await at_rest(term)
    parent = term.env.model.parents.get(row.id)
    assert (region.state.name if parent is None else RegionState(parent.state).name) == after
    assert ((row.id in disk.regions), (row.id in term.env.model.regions)) == (parent is None, parent is None)
    if parent is None:
        assert RegionState(disk.regions[row.id].state).name == after
        assert (disk.regions[row.id].server, region.server.name if region.server else "") == (owner, owner)
    assert {one.name for one in (first, second) if row.id in one.has} == ({owner} if owner else set())
    expected = SAYS.get((before, primitive))
    assert (expected or "") in (record.error or record.result.decode())
    assert bool(record.error) is (primitive in ("split", "merge") and expected is not None)
    merged = (before, primitive) == ("OPEN", "merge")
    assert (neighbour.id in disk.regions) is not merged
