"""What each primitive makes of a region, by the state in which it finds it: the full product, written down by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Final

import pytest

from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import Owner
from regent_agent.protocol import Owned, Refused, Registered
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    Server,
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
}
ENDS: Final = {
    "OPEN": "OPEN CLOSED OPEN",
    "CLOSED": "OPEN CLOSED OPEN",
    "FAILED_OPEN": "OPEN FAILED_OPEN OPEN",
    "OFFLINE": "OFFLINE CLOSED OFFLINE",
}
"""The state at the end, by the state before it; a region is OFFLINE here because its table is disabled."""
OWNERS: Final = {
    "OPEN": "a - b",
    "CLOSED": "a - b",
    "FAILED_OPEN": "a - b",
    "OFFLINE": "- - -",
}
SAYS: Final = {
    ("OPEN", "assign"): b"it is open already",
    ("CLOSED", "close"): b"it is closed already",
    ("FAILED_OPEN", "close"): b"it is failed_open already",
    ("OFFLINE", "assign"): b"its table is disabled",
    ("OPEN", "move"): b"open",
    ("CLOSED", "move"): b"open",
    ("FAILED_OPEN", "move"): b"open",
    ("OFFLINE", "move"): b"offline",
}
"""Results; what is not here has none: it is done as it was wanted."""


class Listing(Server):
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
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        if before == "OFFLINE":
            await ended(term, changes(term, "disable"))
    [row] = disk.regions.values()
    if before != "OPEN":
        disk.put(Owner(row.id, RegionState[before], "", 0, row.token, row.sequence))
    async with running(disk) as term:
        first, second = Listing(term, "a"), Listing(term, "b")
        first.has = {row.id: row.token} if before == "OPEN" else {}
        async with serving(first, second):
            [region] = regions_of(term)
            said = await ended(term, PRIMITIVES[primitive](term, region))
            await at_rest(term)
    assert (region.state.name, RegionState(disk.regions[row.id].state).name) == (after, after)
    assert (disk.regions[row.id].server, region.server.name if region.server else "") == (owner, owner)
    assert {one.name for one in (first, second) if one.has} == ({owner} if owner else set())
    assert said == SAYS.get((before, primitive), b"")
