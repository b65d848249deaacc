"""Processes that register, poll, report and leave: what is stored and begun for each, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from controller.regions.comparison import LIST_EVERY_S
from controller.regions.procedures import close, crash, servers
from controller.regions.procedures.messages import CRASH, TRANSIT, Transit
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import DropServer, PutServer
from regent_agent import protocol
from regent_agent.protocol import Left, Operations, Refused, Registered
from state_machines.procedures.record import Record
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

LEASE_S = OPTIONS.lease_ms / 1000


class Noting(MemoryRegionStore):
    """A store that takes its time, and notes the rows of servers that it is given."""

    noted: list[object]

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        some = list(rows)
        vars(self).setdefault("noted", []).extend(one for one in some if isinstance(one, DropServer | PutServer))
        await asyncio.sleep(0.1)
        await super().write(puts, deletes, some)


def noted(term: RegionsTerm) -> list[object]:
    """Returns the rows of servers that the store of a term was given."""
    return list(vars(term._store).get("noted", ()))


def codes(*responses: object) -> list[str]:
    return [one.code if isinstance(one, Refused) else type(one).__name__ for one in responses]


def crashes(term: RegionsTerm) -> list[str]:
    found = [CRASH.decode(one.data) for one in term.engine.live() if one.kind == crash.NAME]
    return [f"{one.server},{one.incarnation}" for one in found]


# -- registrations


@virtual
async def test_a_process_that_began_before_the_present_one_of_its_name_leaves_no_trace() -> None:
    disk = RegionDisk()
    async with running(disk, store=Noting) as term, serving(Server(term, "a", 5)):
        before = noted(term)
        assert codes(await Server(term, "a", 4).register()) == [protocol.DEAD]
        await asyncio.sleep(1)
        assert noted(term) == before
        assert (list(disk.servers), crashes(term)) == ([("a", 5)], [])


@virtual
async def test_a_process_has_its_lease_while_its_list_waits_and_a_full_one_afterwards() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await asyncio.sleep(1)
        async with term.manager.comparison._turn:  # another list is being compared
            registers = asyncio.ensure_future(server.register())
            [member] = await until(lambda: list(term.env.model.servers.values()))
            assert not term.env.is_late(member)
            assert not term.env.servers(), "it has not listed its regions"
            await asyncio.sleep(2 * LEASE_S)
        assert isinstance(await registers, Registered)
        await asyncio.sleep(0.9 * LEASE_S)
        assert member.state is ServerState.ONLINE
        await until(lambda: ("a", 1) not in term.env.model.servers)


@virtual
async def test_a_process_that_crashes_while_its_list_waits_is_told_so_and_a_repeated_one_registers_again() -> None:
    async with running(RegionDisk()) as term:
        async with term.manager.comparison._turn:
            registers = [asyncio.ensure_future(Server(term, name).register()) for name in ("a", "b", "b")]
            await until(lambda: len(term.env.model.servers) == 2)
            term.manager.expire(term.env.model.servers["a", 1], "a test")
        assert codes(*await asyncio.gather(*registers)) == [protocol.DEAD, protocol.REGISTER, "Registered"]


@virtual
async def test_members_of_the_store_that_have_not_come_yet_do_not_count_as_servers_that_have() -> None:
    disk, options = RegionDisk(), replace(OPTIONS, servers_min=2, startup_wait_ms=600_000, lease_ms=60_000)
    async with running(disk, options) as term, serving(Server(term, "a"), Server(term, "b")):
        await until(lambda: term.env.places)
    async with running(disk, options) as term, serving(Server(term, "a")):
        await asyncio.sleep(1)
        assert not term.env.places
        async with serving(Server(term, "b")):
            assert term.env.places


# -- requests of processes that have been fenced, and of those that are unknown


@virtual
async def test_a_process_that_was_fenced_ends_whatever_it_sends() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register()
        term.manager.expire(term.env.model.servers["a", 1], "a test")
        requests = (
            protocol.Poll("a", 1, server.epoch, 0),
            protocol.Report("a", 1, server.epoch, []),
            protocol.Regions("a", 1, server.epoch, []),
            protocol.Leave("a", 1, server.epoch),
        )
        for _ in ("crashed", "fenced"):
            assert codes(*[await server.ask(one) for one in requests]) == [protocol.DEAD] * 4
            await until(lambda: term.env.model.is_buried(("a", 1)) and ("a", 1) not in term.env.model.servers)
        unknown = [await Server(term, "c").ask(one) for one in (protocol.Poll("c", 1, 1, 0), protocol.Leave("c", 1, 1))]
        assert codes(*unknown) == [protocol.REGISTER, "Left"]


@virtual
async def test_a_process_of_an_earlier_epoch_registers_and_is_sent_nothing() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register()
        former = server.epoch
    async with running(disk) as term:
        server.term = term
        assert codes(await server.ask(protocol.Poll("a", 1, term.manager.epoch, 0))) == [protocol.REGISTER]
        await server.register()
        assert codes(await server.ask(protocol.Poll("a", 1, former, 0))) == [protocol.REGISTER]


@virtual
async def test_a_process_is_asked_for_its_list_once_in_a_while_not_with_each_poll() -> None:
    async with running(RegionDisk(), replace(OPTIONS, lease_ms=200_000)) as term:
        server = Server(term, "a")
        await server.register()
        asked: list[bool] = []
        for pause_s in (0.0, LIST_EVERY_S, 0.0):
            await asyncio.sleep(pause_s)
            found = await server.ask(protocol.Poll("a", 1, server.epoch, server.taken))
            assert isinstance(found, Operations)
            asked.append(found.list_regions)
        assert asked == [False, True, False]


@virtual
async def test_a_result_that_was_durable_before_is_taken_once_and_the_server_forgets_it() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
        await procedure(term, close.NAME, TRANSIT.encode(Transit(regions_of(term)[0].id, "t")))
        result = done(await server.operation())
        for _ in range(2):
            assert await server.report(result) == []
            await until(lambda: term.engine.records[result.pid].state.is_final)


# -- processes that leave


@virtual
async def test_a_process_that_leaves_gets_no_region_from_its_request_on_and_is_forced_also_after_a_failover() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        had = lists(regions_of(term))
        member = term.env.model.servers["a", 1]
        assert await term.manager.leave(member) == 1
        assert (member.leaving, member.forced, list(term.env.model.online())) == (True, True, [])
        [drain] = await until(lambda: [one for one in term.engine.live() if one.kind == servers.DRAIN])
        assert CRASH.decode(drain.data).force
    async with running(disk) as term:
        await Server(term, "a").register(*had)
        member = term.env.model.servers["a", 1]
        assert (member.leaving, member.forced, list(term.env.model.online())) == (True, True, [])


@virtual
async def test_a_process_that_leaves_is_drained_again_each_time_that_an_operator_has_ended_its_drain() -> None:
    async with running(RegionDisk()) as term:
        leaver = Server(term, "a")
        async with serving(leaver):
            await ended(term, creates(term))
            for _ in range(3):
                assert await leaver.ask(protocol.Leave("a", 1, leaver.epoch)) == Left(1)
                [drain] = await until(lambda: [one for one in term.engine.live() if one.kind == servers.DRAIN])
                assert await term.engine.bypass(drain.pid)
                await until(lambda: not term.env.draining)
                assert not term.env.model.servers["a", 1].leaving, "it may get regions again"


@virtual
async def test_the_row_of_a_process_stays_until_its_last_region_has_gone() -> None:
    disk = RegionDisk()
    async with running(disk, store=Noting) as term:
        leaver = Server(term, "a")
        async with serving(leaver):
            await ended(term, creates(term, regions=2))
            leave = protocol.Leave("a", 1, leaver.epoch)
            before = noted(term)
            for _ in range(3):
                assert await leaver.ask(leave) == Left(2)
                await asyncio.sleep(1)
            assert noted(term) == before, "there is no other server that its regions could go to"
            async with serving(Server(term, "b")):
                await until(lambda: {str(one.server) for one in regions_of(term)} == {"b,1"})
                assert await leaver.ask(leave) == Left(0)
                assert [one for one in noted(term) if isinstance(one, DropServer)] == [DropServer("a", 1)]
                assert disk.servers.keys() == {("b", 1)}
