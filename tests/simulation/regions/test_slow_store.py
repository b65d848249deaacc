"""What servers send while the store writes: state is checked again after each write."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from controller.regions import admission
from controller.regions.comparison import OLD_MS
from controller.regions.domain import RegionsDomain
from controller.regions.http.requests import NamespaceCreation
from controller.regions.operator.changes import Changes
from regent_agent import protocol
from regent_agent.protocol import Left, Owned, Registered
from state_machines.regions.states import ServerState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, done, ended, regions_of, running, serving, until, virtual
from tests.simulation.regions.test_members import WRITE_S, Slow


@virtual
async def test_a_process_that_lists_a_region_during_its_last_request_to_leave_stays_a_member() -> None:
    disk = RegionDisk()
    async with running(disk, store=Slow) as term, serving(Server(term, "s2")):
        await ended(term, creates(term))
        await asyncio.sleep(OLD_MS / 1000)
        [region] = regions_of(term)
        server = Server(term, "s1")
        await server.register()
        leave = protocol.Leave("s1", 1, server.epoch)
        assert await server.ask(leave) == Left(1)
        await until(lambda: not list(term.engine.live()))
        last = asyncio.ensure_future(server.ask(leave))
        await asyncio.sleep(WRITE_S / 2)
        await server.ask(protocol.Regions("s1", 1, server.epoch, [Owned(region.id, region.token - 1)]))
        assert await last == Left(1)
        assert ("s1", 1) in disk.servers
        await server.report(done(await server.operation()))
        await until(lambda: not list(term.engine.live()))
        assert await server.ask(leave) == Left(0)
        assert ("s1", 1) not in disk.servers


@virtual
async def test_processes_that_register_together_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 2)
    disk = RegionDisk()
    async with running(disk, store=Slow) as term:
        found = await asyncio.gather(*(Server(term, name).register() for name in "abc"))
        assert [isinstance(one, Registered) for one in found] == [True, True, False]
        assert len(disk.servers) == 2


@virtual
async def test_a_request_that_is_sent_again_while_it_is_stored_has_the_same_procedure() -> None:
    async with running(RegionDisk(), store=Slow) as term:
        changes = Changes(cast("RegionsDomain", SimpleNamespace(term=term)))
        request = NamespaceCreation(name="shop", nonce="n1")
        first = asyncio.ensure_future(changes.create_namespace(request, "User:ops"))
        found = []
        while not first.done():
            await asyncio.sleep(WRITE_S / 5)
            found.append(asyncio.ensure_future(changes.create_namespace(request, "User:ops")))
        assert {one.pid for one in await asyncio.gather(*found)} == {first.result().pid}
        assert len(found) > 4


@virtual
async def test_a_crash_that_is_ahead_of_the_request_for_it_is_not_set_back() -> None:
    async with running(RegionDisk(), store=Slow) as term:
        await Server(term, "s1").register()
        server = term.env.model.servers["s1", 1]
        server.state = ServerState.FENCED
        term.manager.crashed(server, "expired by User:ops")
        assert server.state is ServerState.FENCED, "its regions may be elsewhere already"
        assert server.key in term.env.crashing, "the check of leases begins no second one"
        term.env.crashing.clear()
        server.state = ServerState.ONLINE
        term.manager.crashed(server, "expired by User:ops")
        assert server.state is ServerState.CRASHED
