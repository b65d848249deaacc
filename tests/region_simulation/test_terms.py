"""The works of a term: what ends it, and what it looks at before it believes that a server is dead."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from controller.regions.manager import Manager
from controller.regions.term import RegionsTerm
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.region_simulation.kit import OPTIONS, Server, Wall, virtual


async def term_of(disk: RegionDisk, *, leads: list[bool] | None = None) -> RegionsTerm:
    """Returns a term that is loaded, and runs nothing yet; ``leads``: its last entry says whether it does."""
    store = MemoryRegionStore(disk)
    term = RegionsTerm(
        store, store, store.epoch, OPTIONS, wall_ms=Wall(), seed=1, leads=lambda: leads is None or leads[-1]
    )
    await term.load()
    return term


@virtual
async def test_a_fault_as_regions_begin_to_be_placed_ends_the_term() -> None:
    """Else no region would ever be placed, and nothing would say so."""
    term = await term_of(RegionDisk())
    with mock.patch.object(Manager, "place", side_effect=RuntimeError("a fault")), pytest.raises(RuntimeError):
        await asyncio.wait_for(term.run(), 10 * OPTIONS.startup_wait_ms / 1000)


@virtual
async def test_a_term_goes_on_once_regions_are_placed() -> None:
    term = await term_of(RegionDisk())
    running = asyncio.ensure_future(term.run())
    await asyncio.sleep(10 * OPTIONS.startup_wait_ms / 1000)
    assert (term.env.places, running.done()) == (True, False)
    running.cancel()
    await asyncio.wait({running})


@virtual
async def test_a_daemon_whose_claim_is_in_doubt_takes_no_server_for_dead() -> None:
    """Its successor may have the polls by now."""
    leads = [True]
    term = await term_of(RegionDisk(), leads=leads)
    running = asyncio.ensure_future(term.run())
    silent = Server(term, "s1")
    await silent.register()

    def is_online() -> bool:
        return term.env.model.servers["s1", 1].state is ServerState.ONLINE

    leads.append(False)
    await asyncio.sleep(5 * OPTIONS.lease_ms / 1000)
    assert is_online()
    leads.append(True)
    await asyncio.sleep(0.9 * OPTIONS.lease_ms / 1000)
    assert is_online(), "it has a full lease from the end of the doubt"
    await asyncio.sleep(OPTIONS.lease_ms / 1000)
    assert not is_online()
    running.cancel()
    await asyncio.wait({running})
