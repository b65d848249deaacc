"""The domain of a daemon from term to term: what it shows, what it forgets, and what a fault of one term ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from controller.procedures.requests import Bypass, ProcedureRefused
from controller.regions.claim import Opening
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import AGAIN_S, RegionsDomain, RegionsMode
from controller.regions.term import RegionsTerm
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog
from metadata_store.records.claims import Holder
from metadata_store.records.port import Above, RecordStore, StoreFailed
from state_machines.procedures.record import NO_ENDING
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import OPTIONS, Wall, virtual


class FakeOpened:
    """A store in memory, whose claim is lost when the test says so."""

    def __init__(self, disk: RegionDisk, above: Above) -> None:
        store = MemoryRegionStore(disk, above.epoch)
        self.store: RecordStore = store
        self.catalog: Catalog = store
        self.epoch = store.epoch
        self.nodes: Nodes | None = None
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False

    def leads(self) -> bool:
        return not self.closed

    def look(self) -> asyncio.Event:
        over = asyncio.Event()
        over.set()
        return over

    def suspended(self) -> str:
        return ""

    def complaint(self) -> str:
        return ""

    async def daemons(self) -> Sequence[Holder]:
        return ()

    async def lost(self) -> None:
        await self.ends

    async def close(self) -> None:
        self.closed = True


class Fixture:
    """A domain and what it has opened; ``fails``: raised by the next attempts to open."""

    def __init__(self) -> None:
        self.disk = RegionDisk()
        self.opened: list[FakeOpened] = []
        self.openings: list[Opening] = []
        self.fails: list[Exception] = []
        self.listener: Any = mock.MagicMock(host="h", port=1)
        self.listener.start, self.listener.stop = mock.AsyncMock(), mock.AsyncMock()
        self.domain = RegionsDomain(
            self._open, self.listener, OPTIONS, wall_ms=Wall(), limits=DispatchLimits(), placement="retain"
        )
        self.modes: list[tuple[RegionsMode, bool]] = []
        become = self.domain._become

        def noted(mode: RegionsMode, why: str) -> None:
            become(mode, why)
            self.modes.append((mode, self.domain.failed))

        self.domain._become = noted  # type: ignore[method-assign]
        self.running = asyncio.ensure_future(self.domain.run())

    async def _open(self, opening: Opening) -> FakeOpened:
        self.openings.append(opening)
        opening.claimed("the store")
        if self.fails:
            raise self.fails.pop()
        self.opened.append(FakeOpened(self.disk, opening.above))
        return self.opened[-1]

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait({self.running})


@pytest.mark.parametrize("error", [StoreFailed("the disk is full"), OSError("no route"), RuntimeError("a fault")])
@virtual
async def test_whatever_ends_a_term_the_next_one_begins_and_nothing_of_it_is_served(error: Exception) -> None:
    found = Fixture()
    await asyncio.sleep(1)
    assert found.domain.mode is RegionsMode.ACTIVE
    found.listener.serve.assert_called_once()
    assert found.listener.prepare.call_args.kwargs == {"term": True}, "a Hello waits for the listener to serve"
    term = found.domain.term
    assert term is not None
    found.opened[0].ends.set_exception(error)
    await asyncio.sleep(AGAIN_S / 2)
    assert (found.domain.mode, found.domain.failed, found.domain.term) == (RegionsMode.FAILING, True, None)
    assert str(error) in found.domain.why
    assert found.listener.prepare.call_args.kwargs == {"term": False}
    assert found.opened[0].closed
    found.listener.resign.assert_called_once()
    assert found.domain._seen._serving is None, "what servers name now is judged by the next term"
    with pytest.raises(StoreFailed):
        await term.engine.bypass(1)
    await asyncio.sleep(AGAIN_S)
    assert (found.domain.mode, found.domain.failed) == (RegionsMode.ACTIVE, False)
    assert [one.epoch for one in found.opened] == [1, 2]
    await found.stop()
    assert found.opened[1].closed
    found.listener.stop.assert_awaited_once()


@virtual
async def test_the_cause_of_a_failure_stays_until_a_term_serves() -> None:
    found = Fixture()
    await asyncio.sleep(1)
    assert found.modes.pop() == (RegionsMode.ACTIVE, False)
    found.modes.clear()
    found.fails = [StoreFailed("again"), StoreFailed("the disk is full")]
    found.opened[0].ends.set_exception(StoreFailed("the claim is lost"))
    await asyncio.sleep(4 * AGAIN_S)
    failing = (RegionsMode.FAILING, True)
    assert found.modes == [failing] * 3 + [(RegionsMode.LOADING, True), (RegionsMode.ACTIVE, False)]
    await found.stop()


@virtual
async def test_what_servers_have_seen_is_kept_where_a_term_above_it_does_not_load() -> None:
    found = Fixture()
    await asyncio.sleep(1)
    found.domain._seen._above = Above(9, 500)
    with mock.patch.object(RegionsTerm, "load", side_effect=StoreFailed("the disk is full")):
        found.opened[0].ends.set_exception(StoreFailed("the claim is lost"))
        await asyncio.sleep(1.5 * AGAIN_S)
    await asyncio.sleep(2 * AGAIN_S)
    assert [one.above for one in found.openings[1:]] == [Above(9, 500)] * 2
    assert found.domain._seen.above == Above(0, 0), "a term is above it now"
    assert found.opened[-1].epoch > 9
    await found.stop()


@virtual
async def test_requests_that_wait_for_a_term_are_refused_as_the_daemon_stops() -> None:
    found = Fixture()
    await asyncio.sleep(1)
    found.fails = [StoreFailed("the disk is full")] * 9
    found.opened[0].ends.set_exception(StoreFailed("the claim is lost"))
    await asyncio.sleep(1)
    waiting = asyncio.ensure_future(found.domain.parking.asked(Bypass(1, NO_ENDING), lambda: "it fails"))
    await asyncio.sleep(AGAIN_S)
    assert not waiting.done()
    await found.stop()
    with pytest.raises(ProcedureRefused, match="is stopped"):
        await asyncio.wait_for(waiting, 0.5)


@pytest.mark.parametrize(("journal", "older"), [(0, False), (1, True), (5, True)])
@virtual
async def test_a_store_whose_epoch_the_journal_has_already_is_said_to_be_older(journal: int, older: bool) -> None:
    found = Fixture()
    found.domain.journal = SimpleNamespace(folder=Path("/j"), term=lambda *_: None)  # type: ignore[assignment]
    found.domain.journal_epoch = journal
    await asyncio.sleep(1)
    assert bool(found.domain.older) is older, "no epoch begins twice"
    await found.stop()
