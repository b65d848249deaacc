"""Nobody speaks for another's process: secrets of two roles, proofs, and incarnations that keep no one out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.regions.connection import Peer, digest_of
from brokers.regions.secret import Secrets
from controller.domain import running
from controller.http.documents import NotFound
from controller.http.documents import ViewRefused as OperatorRefused
from controller.regions import admission
from controller.regions.admission import AHEAD_MS_MAX
from controller.regions.operator.servers import ServerChange
from controller.regions.operator.status import ahead
from controller.regions.operator.view import View
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.procedures.servers import FORGET
from controller.regions.process import domain_of
from controller.regions.term import RegionsTerm
from regent_agent import codec, protocol
from regent_agent.agent import Agent, Died
from regent_agent.options import AgentOptions
from regent_agent.protocol import Hello, Refused, Register
from regent_agent.router import Router
from state_machines.procedures.record import Caller, Record
from state_machines.regions.model import Buried
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Opens, RegionsWorld, settings_of
from tests.kit.regions.term import view_of
from tests.kit.regions.world import Wall, until, virtual
from tests.kit.regions.world import running as running_term

SERVERS, CLIENTS = "secret-of-servers", "secret-of-clients"
PROOF, OTHER = Peer(proof=digest_of(b"0" * 16)), Peer(proof=digest_of(b"1" * 16))
OLD = Peer()
ABSURD = (1 << 63) - 1


class Raw:
    """A connection that sends what the test wants."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._reader, self._writer = streams

    @classmethod
    async def open(cls, port: int, secret: str, proof: bytes = b"") -> Raw:
        raw = cls(await asyncio.open_connection("127.0.0.1", port))
        assert isinstance(await raw.ask(Hello(1, secret, proof)), protocol.Welcome)
        return raw

    async def ask(self, request: protocol.Request) -> protocol.Response:
        self._writer.write(codec.encode(request))
        (length,) = codec.LENGTH.unpack(await self._reader.readexactly(codec.LENGTH.size))
        return codec.decode_response(await self._reader.readexactly(length))

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def secured(tmp_path: Path) -> AsyncIterator[RegionsWorld]:
    """Runs a daemon with both secrets, and server s1."""
    settings = settings_of(tmp_path)
    world = RegionsWorld(settings)
    world.domain = domain_of(settings, None, Secrets((SERVERS,), (CLIENTS,)))
    world.view = View(world.domain, settings)
    async with running(world.domain):
        await eventually(lambda: world.domain.term is not None)
        address = ("127.0.0.1", world.domain.listener.port)
        agent = Agent(Opens(), AgentOptions((address,), "s1", "s1:1", incarnation=5, secret=SERVERS))
        await agent.start()
        try:
            yield world
        finally:
            await agent.stop()


def requests_for(name: str, incarnation: int, epoch: int) -> list[protocol.Request]:
    """Returns one request of each kind that servers send."""
    found: list[protocol.Request] = [
        Register(name, incarnation, "elsewhere:1"),
        protocol.Poll(name, incarnation, epoch, 0),
        protocol.Report(name, incarnation, epoch, []),
        protocol.Regions(name, incarnation, epoch, []),
        protocol.Independent(name, incarnation, epoch, []),
        protocol.Loads(name, incarnation, epoch, []),
        protocol.Leave(name, incarnation, epoch),
    ]
    assert {type(one) for one in found} == set(protocol.OF_SERVERS)
    return found


async def test_a_client_registers_no_server_and_asks_for_routes(tmp_path: Path) -> None:
    """It registered as a server with the highest incarnation, and had all its regions and routes."""
    async with secured(tmp_path) as world:
        term = world.domain.term
        assert term is not None
        raw = await Raw.open(world.domain.listener.port, CLIENTS)
        for request in (*requests_for("s1", ABSURD, term.manager.epoch), *requests_for("s1", 5, term.manager.epoch)):
            refused = await raw.ask(request)
            assert isinstance(refused, Refused)
            assert refused.code == protocol.UNAUTHENTICATED
            assert "regions.secret_file" in refused.text
        assert [*term.env.model.servers] == [("s1", 5)]
        assert isinstance(await raw.ask(protocol.ListRoutes("t")), Refused), "it is heard: there is no such table"
        raw.close()
        router = Router([("127.0.0.1", world.domain.listener.port)], CLIENTS)
        with pytest.raises(LookupError):
            await router.locate("t", b"")
        await router.stop()


async def test_a_connection_without_the_proof_speaks_for_nobody(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        term = world.domain.term
        assert term is not None
        server = term.env.model.servers["s1", 5]
        for proof in (b"", b"of another process"):
            raw = await Raw.open(world.domain.listener.port, SERVERS, proof)
            for request in requests_for("s1", 5, term.manager.epoch):
                refused = await raw.ask(request)
                assert isinstance(refused, Refused)
                assert refused.code == protocol.UNAUTHENTICATED
                assert "s1,5 has registered with another proof" in refused.text
            raw.close()
        assert (server.address, server.leaving, server.state) == ("s1:1", False, ServerState.ONLINE)


async def test_a_short_proof_is_refused(tmp_path: Path) -> None:
    async with secured(tmp_path) as world:
        raw = Raw(await asyncio.open_connection("127.0.0.1", world.domain.listener.port))
        refused = await raw.ask(Hello(1, SERVERS, b"short"))
        assert isinstance(refused, Refused)
        assert refused.text == "proof: 5 bytes, at least 16 random ones are wanted"
        raw.close()


async def registered(term: RegionsTerm, name: str, incarnation: int, peer: Peer = OLD) -> str:
    """Returns the code of the refusal, empty for a registration."""
    found = await term.service.handle(Register(name, incarnation, f"{name}:1"), peer)
    return found.code if isinstance(found, Refused) else ""


async def polled(term: RegionsTerm, name: str, incarnation: int, peer: Peer) -> str:
    found = await term.service.handle(protocol.Poll(name, incarnation, term.manager.epoch, 0), peer)
    return found.code if isinstance(found, Refused) else ""


@virtual
async def test_after_a_failover_its_own_process_alone_comes_back() -> None:
    disk = RegionDisk()
    async with running_term(disk) as term:
        assert await registered(term, "s1", 5, PROOF) == ""
        assert await registered(term, "s2", 5, OLD) == ""
    async with running_term(disk) as term:
        for peer in (OTHER, OLD):
            assert await registered(term, "s1", 5, peer) == protocol.UNAUTHENTICATED
            assert await polled(term, "s1", 5, peer) == protocol.UNAUTHENTICATED
        assert await polled(term, "s1", 5, PROOF) == protocol.REGISTER
        assert await registered(term, "s1", 5, PROOF) == ""
        assert await registered(term, "s2", 5, OLD) == ""
        assert await registered(term, "s2", 5, OTHER) == protocol.UNAUTHENTICATED


@virtual
async def test_an_agent_that_gave_no_proof_gives_one_after_the_update_of_its_daemon() -> None:
    disk = RegionDisk()
    async with running_term(disk) as term:
        assert await registered(term, "s1", 5, OLD) == ""
    async with running_term(disk) as term:
        assert await registered(term, "s1", 5, PROOF) == ""
        assert await registered(term, "s1", 5, OLD) == protocol.UNAUTHENTICATED
    async with running_term(disk) as term:
        assert await registered(term, "s1", 5, OTHER) == protocol.UNAUTHENTICATED, "it was stored"


class Slow(MemoryRegionStore):
    """A store whose writes take time: two of them may be under way at once."""

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        await asyncio.sleep(0.01)
        await super().write(puts, deletes, rows)


@pytest.mark.parametrize("known", [False, True], ids=["new", "loaded"])
@virtual
async def test_of_two_that_register_side_by_side_one_has_the_name(known: bool) -> None:
    disk = RegionDisk()
    if known:
        async with running_term(disk) as term:
            await registered(term, "s1", 5, OLD)
    async with running_term(disk, store=Slow) as term:
        codes = [*await asyncio.gather(registered(term, "s1", 5, PROOF), registered(term, "s1", 5, OTHER))]
        assert codes == ["", protocol.UNAUTHENTICATED]
        assert await polled(term, "s1", 5, PROOF) == ""
    assert admission.proofs_in((await MemoryRegionStore(disk).read()).marks) == {("s1", 5): PROOF.proof}


@virtual
async def test_the_proof_goes_with_its_process() -> None:
    disk = RegionDisk()
    async with running_term(disk) as term:
        for name in ("s1", "s2"):
            assert await registered(term, name, 5, PROOF) == ""
        await eventually_left(term, "s2")
        term.manager.expire(term.env.model.servers["s1", 5], "the test says so")
        await until(lambda: ("s1", 5) not in term.env.model.servers)
        assert not admission.proofs_in((await MemoryRegionStore(disk).read()).marks)


async def eventually_left(term: RegionsTerm, name: str) -> None:
    leave = protocol.Leave(name, 5, term.manager.epoch)
    async with asyncio.timeout(10):
        while await term.service.handle(leave, PROOF) != protocol.Left(0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@virtual
async def test_the_proof_of_a_process_that_an_older_daemon_removed_is_removed_at_the_start() -> None:
    disk = RegionDisk()
    store = MemoryRegionStore(disk)
    for number in range(150):
        await store.write((), (), admission.keep_proof(("gone", number), "x"))
    async with running_term(disk) as term:
        await registered(term, "s1", 5, PROOF)
    assert admission.proofs_in((await MemoryRegionStore(disk).read()).marks) == {("s1", 5): PROOF.proof}


@virtual
async def test_an_incarnation_far_ahead_of_the_present_time_is_refused() -> None:
    wall = Wall()
    async with running_term(RegionDisk(), wall=wall) as term:
        most = (wall() + AHEAD_MS_MAX) * 1_000
        for ahead in (ABSURD, most + 60_000_000):
            found = await term.service.handle(Register("s1", ahead, "s1:1"))
            assert isinstance(found, Refused)
            assert found.code == protocol.INVALID
            assert "in microseconds since 1970" in found.text
        assert await registered(term, "s1", most - 60_000_000) == "", "a clock may be a day ahead of another"


@virtual
async def test_a_member_with_such_an_incarnation_stays_one() -> None:
    """An older daemon accepted it."""
    disk, wall = RegionDisk(), Wall()
    wall.ahead_ms = 10 * AHEAD_MS_MAX
    incarnation = wall() * 1_000
    async with running_term(disk, wall=wall) as term:
        assert await registered(term, "s1", incarnation, PROOF) == ""
    async with running_term(disk, wall=Wall()) as term:
        assert await registered(term, "s1", incarnation, PROOF) == ""
        assert await registered(term, "s2", incarnation, PROOF) == protocol.INVALID


async def fenced(world: RegionsWorld, name: str, incarnation: int) -> None:
    """Has a process register and be fenced."""
    agent = await world.start(name, incarnation)
    await world.kill(name)
    term = world.domain.term
    assert term is not None
    term.manager.expire(term.env.model.servers[name, incarnation], "the test says so")
    await eventually(lambda: (name, incarnation) not in term.env.model.servers)
    assert agent.incarnation == incarnation


async def test_a_server_whose_clock_is_behind_takes_the_next_incarnation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RegionsWorld(settings_of(tmp_path, lease_ms=1_000))
    async with running(world.domain):
        await eventually(lambda: world.domain.term is not None)
        await fenced(world, "s1", 1_000)
        monkeypatch.setattr("regent_agent.agent.time.time_ns", lambda: 500_000)
        agent = await world.start("s1", 0)
        assert agent.incarnation == 1_001
        await agent.stop()


@pytest.mark.parametrize("named", [True, False], ids=["given", "read"])
async def test_an_incarnation_that_others_know_stays_and_its_end_names_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    world = RegionsWorld(settings_of(tmp_path, lease_ms=1_000))
    async with running(world.domain):
        await eventually(lambda: world.domain.term is not None)
        await fenced(world, "s1", 1_000)
        monkeypatch.setattr("regent_agent.agent.time.time_ns", lambda: 500_000)
        options = AgentOptions((("127.0.0.1", world.domain.listener.port),), "s1", "s1:1", incarnation=500 * named)
        agent = Agent(Opens(), options)
        assert named or agent.incarnation == 500
        with pytest.raises(Died, match="s1,500 is not above 1000, which was fenced") as died:
            await agent.start()
        assert died.value.above == agent.above == 1_000
        assert agent.incarnation == 500


@virtual
async def test_an_operator_has_a_name_forgotten_that_an_absurd_incarnation_had() -> None:
    """An older daemon had accepted it, so no process of the server could ever come back."""
    disk, wall = RegionDisk(), Wall()
    wall.ahead_ms = 10 * AHEAD_MS_MAX
    absurd = wall() * 1_000
    async with running_term(disk, wall=wall) as term:
        assert await registered(term, "s1", absurd, OTHER) == ""
    async with running_term(disk, wall=Wall()) as term:
        changes, status = view_of(domain_with(term)), warned(term)
        assert await registered(term, "s1", 5, PROOF) == protocol.DEAD
        assert "servers s1 have an incarnation beyond" in status()
        with pytest.raises(OperatorRefused, match=f"regent servers expire s1,{absurd} --wait"):
            await changes.servers.change_server("forget", "s1", ServerChange(), "User:ops")
        await changes.servers.change_server("expire", "s1", ServerChange(), "User:ops")
        await until(lambda: not term.env.model.servers)
        refused = await term.service.handle(Register("s1", 5, "s1:1"), PROOF)
        assert isinstance(refused, Refused)
        assert (refused.code, refused.above) == (protocol.DEAD, 0)
        assert "'regent servers forget s1'" in refused.text
        assert "the fenced incarnations of s1 are beyond" in status()
        planned = await changes.servers.change_server("forget", "s1", ServerChange(dry_run=True), "User:ops")
        assert planned.state == "planned"
        begun = await changes.servers.change_server("forget", "s1", ServerChange(reason="absurd"), "User:ops")
        await term.engine.result(begun.pid)
        assert "s1" not in term.env.model.buried
        assert not status()
        with pytest.raises(NotFound, match="no fenced process of a server 's1' is remembered"):
            await changes.servers.change_server("forget", "s1", ServerChange(), "User:ops")
    async with running_term(disk, wall=Wall()) as term:
        assert await registered(term, "s1", 5, PROOF) == "", "it is stored"


@virtual
async def test_a_name_that_has_a_process_by_now_is_not_forgotten() -> None:
    async with running_term(RegionDisk()) as term:
        term.env.model.enter_buried(Buried(("s1", 5), 1, ()))
        assert await registered(term, "s1", 6, PROOF) == ""
        pid = await term.engine.submit(FORGET, CRASH.encode(Crash("s1", 5)), Caller("User:ops"))
        record = await term.engine.result(pid)
        assert record.error.startswith("server s1,6 is a member")
        assert term.env.model.buried == {"s1": 5}


def domain_with(term: RegionsTerm) -> Any:
    return SimpleNamespace(term=term)


def warned(term: RegionsTerm) -> Callable[[], str]:
    """Returns a function that returns the warnings of the status about incarnations."""
    return lambda: "".join(ahead(term))


@virtual
async def test_a_process_that_began_before_the_present_one_is_told_of_no_next_incarnation() -> None:
    """It may hang since long before: with a higher incarnation it would end the process that replaced it."""
    async with running_term(RegionDisk()) as term:
        term.env.model.enter_buried(Buried(("s1", 5), 1, ()))
        first = await term.service.handle(Register("s1", 3, "s1:1"), PROOF)
        assert await registered(term, "s1", 8, OTHER) == ""
        second = await term.service.handle(Register("s1", 3, "s1:1"), PROOF)
        assert isinstance(first, Refused)
        assert isinstance(second, Refused)
        assert [(one.code, one.above) for one in (first, second)] == [(protocol.DEAD, 5), (protocol.DEAD, 0)]
