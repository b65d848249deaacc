"""Leases of servers at a daemon that could not respond for a while: silence of that time means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.regions.environment import Options
from controller.regions.regime import Regime
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.polling import eventually

LEASE_S = 1.0
STEP_S = 0.1


class Daemon:
    """A term with one server, and a clock of its own. ``leads``: its claim holds for certain."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.leads = True
        store = MemoryRegionStore(RegionDisk())
        options = Options(lease_ms=int(LEASE_S * 1000))
        self.term = RegionsTerm(
            store, store, store.epoch, options, wall_ms=lambda: int(self.now_s * 1000), leads=lambda: self.leads
        )
        self.term.env.clock = lambda: self.now_s

    def is_online(self) -> bool:
        """Returns whether the server counts as alive; a crash without regions is soon over."""
        server = self.term.env.model.servers.get(("s1", 1))
        return server is not None and server.state is ServerState.ONLINE

    def has_full_lease(self) -> bool:
        return self.term.env.model.servers["s1", 1].deadline_s == self.now_s + LEASE_S

    async def passes(self, seconds: float) -> None:
        """Lets time pass in which the daemon runs."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            await asyncio.sleep(LEASE_S / 15)


@asynccontextmanager
async def running() -> AsyncIterator[Daemon]:
    daemon = Daemon()
    await daemon.term.load()
    await daemon.term.service.handle(protocol.Register("s1", 1, "s1:1"))
    task = asyncio.ensure_future(daemon.term.run())
    await asyncio.sleep(0)
    try:
        yield daemon
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_server_that_is_silent_while_the_daemon_runs_counts_as_crashed() -> None:
    async with running() as daemon:
        await daemon.passes(LEASE_S - 2 * STEP_S)
        assert daemon.is_online()
        await daemon.passes(4 * STEP_S)
        assert not daemon.is_online()


async def test_the_sentence_of_an_expired_lease_names_the_lease_of_that_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as daemon:
        sentences: list[str] = []
        env = daemon.term.env
        monkeypatch.setattr(env.journal, "server", lambda server, change, why, **more: sentences.append(why))
        env.former = Regime(3_000, "lease")
        await daemon.passes(4 * LEASE_S)
        assert sentences[0].startswith("no poll for 3000 ms"), "it never polled under the lease of this daemon"


@pytest.mark.parametrize("before_s", [0.0, LEASE_S / 2], ids=["before its first check", "later"])
async def test_a_daemon_that_was_frozen_gives_each_server_a_full_lease(before_s: float) -> None:
    async with running() as daemon:
        await daemon.passes(before_s)
        daemon.now_s += 10 * LEASE_S
        await eventually(daemon.has_full_lease)
        await daemon.passes(2 * LEASE_S)
        assert not daemon.is_online()


@pytest.mark.parametrize("seconds", [0.5 * LEASE_S, 3 * LEASE_S])
async def test_a_daemon_whose_claim_was_in_doubt_gives_each_server_a_full_lease(seconds: float) -> None:
    async with running() as daemon:
        daemon.leads = False
        refused = await daemon.term.service.handle(protocol.Poll("s1", 1, 1, 0))
        assert isinstance(refused, protocol.Refused)
        assert refused.code == protocol.NOT_ACTIVE
        await daemon.passes(seconds)
        daemon.leads = True
        await daemon.passes(LEASE_S - 2 * STEP_S)
        assert daemon.is_online()
        await daemon.passes(4 * STEP_S)
        assert not daemon.is_online()
