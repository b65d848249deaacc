"""What holds for regions however servers answer: in reports, or by znodes of regions in transition."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.regions.procedures import assign, close, move
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.unassigned import encode, path_of
from metadata_store.port import ANY_VERSION
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from state_machines.regions.unassigned import Node, NodeState
from tests.contracts.support import Backend
from tests.kit.deadlines import eventually
from tests.kit.regions.transports import OPTIONS, TransportsWorld, world

COUNT = 6


async def created(w: TransportsWorld, regions: int = COUNT) -> dict[int, str]:
    record = await w.run("create_table", TABLE_TASK.encode(TableTask("t", uniform=regions)))
    assert record.state is State.SUCCESS, record.error
    return await w.settled(regions)


class TransportsContract:
    """Each story ends with each region at one owner that serves, as the catalog says, and without a znode."""

    @pytest.fixture(params=["poll", "zookeeper"])
    def noded(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param == "zookeeper")

    @pytest.mark.seed("S0-8", "S0-27", "S0-29", "S0-30", "S0-31", "S0-46", "S0-47", "S0-48", "S0-49", "S0-51")
    async def test_a_table_is_created_disabled_and_enabled(self, backend: Backend, noded: bool) -> None:
        async with world(backend.client, "s1", "s2", noded=noded) as w:
            owners = await created(w)
            assert sorted(owners.values()) == ["s1", "s1", "s1", "s2", "s2", "s2"]
            assert (await w.run("disable_table", TABLE_TASK.encode(TableTask("t")))).state is State.SUCCESS
            assert await w.settled(0) == {}
            assert {one.state for one in w.term.env.model.regions.values()} == {RegionState.CLOSED}
            assert (await w.run("enable_table", TABLE_TASK.encode(TableTask("t")))).state is State.SUCCESS
            assert await w.settled(COUNT) == owners

    @pytest.mark.seed("S0-20", "S0-24", "S0-25", "S0-26", "S0-32", "S0-43")
    async def test_a_region_moves_is_closed_and_opened(self, backend: Backend, noded: bool) -> None:
        async with world(backend.client, "s1", "s2", noded=noded) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            await w.run(move.NAME, MOVE.encode(Move(region, "t", "s2")))
            assert (await w.settled(COUNT))[region] == "s2"
            await w.run(close.NAME, TRANSIT.encode(Transit(region, "t")))
            assert region not in await w.settled(COUNT - 1)
            await w.run(assign.NAME, TRANSIT.encode(Transit(region, "t")))
            await w.settled(COUNT)

    @pytest.mark.seed("S0-11", "S0-12", "S0-54", "S0-55", "S0-56", "S0-64")
    async def test_the_regions_of_a_server_that_dies_go_to_others(self, backend: Backend, noded: bool) -> None:
        async with world(backend.client, "s1", "s2", "s3", noded=noded) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s2")
            w.members["s1"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s1"))))
            await eventually(lambda: w.term.env.model.regions[region].state is RegionState.OPENING)
            await w.kill("s1")
            found = await w.settled(COUNT)
            assert set(found.values()) == {"s2", "s3"}
            assert (await moving).state is State.SUCCESS

    @pytest.mark.seed("S0-15", "S0-66", "S0-67", "S0-69", "S0-72", "S0-74", "S0-77")
    async def test_a_next_daemon_goes_on_with_opens_and_closes(self, backend: Backend, noded: bool) -> None:
        async with world(backend.client, "s1", "s2", noded=noded) as w:
            owners = await created(w)
            opening = min(one for one, name in owners.items() if name == "s1")
            closing = max(one for one, name in owners.items() if name == "s1")
            holds = w.members["s2"].held[opening] = asyncio.Event()
            closes = w.members["s1"].held[closing] = asyncio.Event()
            moves = [
                asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(one, "t", "s2")))) for one in (opening, closing)
            ]
            state = w.term.env.model.regions
            await eventually(lambda: state[opening].state is RegionState.OPENING)
            await eventually(lambda: state[closing].state is RegionState.CLOSING)
            await w.die()
            holds.set()
            closes.set()
            w.members["s1"].held.clear()
            await w.begin()
            found = await w.settled(COUNT)
            assert (found[opening], found[closing] in ("s1", "s2")) == ("s2", True), "a wish for a server is no must"
            assert [(await one).state for one in moves] == [State.SUCCESS, State.SUCCESS]
            assert w.storage.opens.count(("s2", opening)) == 1, "it was opened once"

    async def test_a_region_that_one_server_cannot_open_goes_to_another(self, backend: Backend, noded: bool) -> None:
        async with world(backend.client, "s1", "s2", noded=noded) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            await w.run(close.NAME, TRANSIT.encode(Transit(region, "t")))
            w.members["s1"].broken.add(region)
            await w.run(assign.NAME, TRANSIT.encode(Transit(region, "t", to="s1")))
            assert (await w.settled(COUNT))[region] == "s2"


class NodesContract:
    """What holds for the znodes."""

    @pytest.mark.seed("S0-13", "S0-14", "S0-65", "S0-71")
    async def test_a_region_whose_open_does_not_progress_goes_to_another_server(self, backend: Backend) -> None:
        """The slower one loses the compare-and-set, and closes what it has opened."""
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            hangs = w.members["s2"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))
            await eventually(lambda: w.agents["s1"].owned.get(region) is not None and moving.done())
            assert w.faults["timed_out"] == 1
            assert w.owners()[region] == "s1"
            w.storage.tokens[region] = 0  # a storage that would take both
            hangs.set()
            await eventually(lambda: w.answers["s2"].refused == 1)
            assert (await w.settled(COUNT))[region] == "s1"

    @pytest.mark.seed("S0-22", "S0-23", "S0-24", "S0-41", "S0-42", "S0-43", "S0-44", "S0-45", "S0-21")
    async def test_a_close_shows_each_state_is_asked_again_and_leaves_nothing(self, backend: Backend) -> None:
        """The daemon does nothing about CLOSING but to ask again; no time-out takes the region from its server."""
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            closes = w.members["s1"].held[region] = asyncio.Event()
            before = w.term.env.dispatcher.sent
            closing = asyncio.ensure_future(w.run(close.NAME, TRANSIT.encode(Transit(region, "t"))))

            async def state() -> NodeState | None:
                found = (await w.nodes()).get(region)
                return None if found is None else found.state

            async def is_closing() -> bool:
                return await state() is NodeState.CLOSING

            await eventually(is_closing)
            await eventually(lambda: w.term.env.dispatcher.sent >= before + 2)
            assert (await is_closing(), w.faults["timed_out"], closing.done()) == (True, 0, False)
            closes.set()
            assert (await closing).state is State.SUCCESS
            await w.settled(COUNT - 1)
            assert await state() is None

    @pytest.mark.seed("S0-27", "S0-28", "S0-29", "S0-31", "S0-49", "S0-50", "S0-51", "S0-52", "S0-75")
    async def test_an_open_shows_each_state_also_to_the_next_daemon_and_leaves_nothing(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            opens = w.members["s2"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))

            async def is_opening() -> bool:
                found = (await w.nodes()).get(region)
                return found is not None and (found.state, found.server) == (NodeState.OPENING, "s2")

            await eventually(is_opening)
            await w.die()
            assert await is_opening(), "an answer outlives the daemon"
            await w.begin()
            assert await is_opening()
            opens.set()
            assert (await moving).state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"
            assert await w.nodes() == {}

    @pytest.mark.seed("S0-86")
    async def test_znodes_that_strangers_write_keep_no_region_from_its_owner(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            garbage, other = sorted(owners)[:2]
            await w.zk.create(path_of(ROOT, garbage), b"no node")
            await w.zk.create(f"{path_of(ROOT, other)}x", b"foreign")
            await w.run(move.NAME, MOVE.encode(Move(garbage, "t", "s2" if owners[garbage] == "s1" else "s1")))
            await w.zk.delete(f"{path_of(ROOT, other)}x", ANY_VERSION)
            found = await w.settled(COUNT)
            assert found[garbage] != owners[garbage]

    @pytest.mark.seed("S0-86")
    @pytest.mark.parametrize("becomes", ["nothing", "garbage", "another's"])
    async def test_an_answer_that_a_stranger_takes_is_given_again(
        self, backend: Backend, becomes: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The daemon has not seen it: it asks again after the limit, and takes nothing from a server that serves."""
        async with world(backend.client, "s1", "s2", noded=True, options=replace(OPTIONS, node_timeout_ms=3_000)) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            opens = w.members["s2"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))

            async def state() -> NodeState | None:
                found = (await w.nodes()).get(region)
                return None if found is None else found.state

            async def is_opening() -> bool:
                known = w.nodes_of_term.known.get(region)
                seen = known is not None and known.node is not None and known.node.state is NodeState.OPENING
                return seen and region not in w.nodes_of_term._dirty and await state() is NodeState.OPENING

            await eventually(is_opening)
            monkeypatch.setattr(w.nodes_of_term, "look", lambda region: None)  # it reads nothing for now
            opens.set()
            await eventually(lambda: region in w.agents["s2"].owned)
            token = w.agents["s2"].owned[region].token
            other = encode(Node(NodeState.OPENING, region, 1, 1, "s9", 1))
            if becomes == "nothing":
                await w.zk.delete(path_of(ROOT, region), ANY_VERSION)
            else:
                await w.zk.set(path_of(ROOT, region), other if becomes == "another's" else b"?", ANY_VERSION)
            monkeypatch.undo()
            assert (await moving).state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"
            assert w.agents["s2"].owned[region].token == token, "it has served all the time"

    @pytest.mark.seed("S0-68", "S0-70", "S0-73", "S0-76")
    async def test_a_next_daemon_deletes_what_no_procedure_awaits(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            first = min(owners)
            token = w.term.env.model.regions[first].token
            await w.die()
            left = Node(NodeState.OPENED, first, 1, token, owners[first], 1, 1)
            await w.zk.create(path_of(ROOT, first), encode(left))
            await w.begin()
            assert await w.settled(COUNT) == owners

    async def test_the_transport_is_switched_while_regions_move(self, backend: Backend) -> None:
        """Servers report to a daemon that reads no znodes; what is left of these is stale, and goes later."""
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            for noded in (False, True):
                opens = w.members["s2"].held[region] = asyncio.Event()
                moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2", f"{noded}"))))
                await eventually(lambda: w.term.env.model.regions[region].state is RegionState.OPENING)
                await w.die()
                w.noded = noded
                await w.begin()
                await eventually(lambda: all(one.here for one in w.term.env.model.servers.values()))
                opens.set()
                assert (await moving).state is State.SUCCESS
                assert w.owners()[region] in ("s1", "s2"), "its znode may have been taken from s2 meanwhile"
                w.members["s2"].held.clear()
                await w.run(move.NAME, MOVE.encode(Move(region, "t", "s1", f"{noded} back")))
            assert (await w.settled(COUNT))[region] == "s1"

    async def test_a_connection_that_breaks_while_a_znode_moves_loses_no_answer(self, backend: Backend) -> None:
        """The watches of the daemon's session are gone with its connection, and no time-out has it look again."""
        options = replace(OPTIONS, node_timeout_ms=60_000)
        async with world(backend.client, "s1", "s2", noded=True, options=options) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            opens = w.members["s2"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))

            async def is_in(state: NodeState) -> bool:
                found = (await w.nodes()).get(region)
                return found is not None and found.state is state

            await eventually(lambda: is_in(NodeState.OPENING))
            backend.suspend(w.daemons_zk)
            opens.set()
            await eventually(lambda: is_in(NodeState.OPENED))
            backend.resume(w.daemons_zk)
            await eventually(moving.done)
            assert moving.result().state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"

    async def test_an_open_that_takes_longer_than_the_limit_gets_twice_the_time_of_the_one_before(
        self, backend: Backend
    ) -> None:
        options = replace(OPTIONS, node_timeout_ms=1_000)
        async with world(backend.client, "s1", "s2", noded=True, options=options) as w:
            owners = await created(w)
            region = min(owners)
            await w.run(close.NAME, TRANSIT.encode(Transit(region, "t")))
            for member in w.members.values():
                member.slow_s = 1.6
            assert (await w.run(assign.NAME, TRANSIT.encode(Transit(region, "t")))).state is State.SUCCESS
            assert w.faults["timed_out"] >= 1
            await w.settled(COUNT)

    async def test_a_znode_that_cannot_be_deleted_keeps_no_other_region_from_its_server(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A stranger makes a child below it."""
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            first, other = sorted(one for one, name in owners.items() if name == "s1")[:2]
            opens = w.members["s2"].held[first] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(first, "t", "s2"))))

            async def is_opening() -> bool:
                found = (await w.nodes()).get(first)
                return found is not None and found.state is NodeState.OPENING

            await eventually(is_opening)
            child = f"{path_of(ROOT, first)}/child"
            await w.zk.create(child, b"foreign")
            opens.set()
            assert (await moving).state is State.SUCCESS
            await w.run(move.NAME, MOVE.encode(Move(other, "t", "s2")))
            assert w.owners()[other] == "s2"
            assert any("cannot be written (NOT_EMPTY)" in one.getMessage() for one in caplog.records)
            await w.zk.delete(child, ANY_VERSION)
            await w.settled(COUNT)

    async def test_a_server_whose_session_has_ended_closes_its_regions_all_the_same(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            await w.sessions["s1"].close()
            assert (await w.run(move.NAME, MOVE.encode(Move(region, "t", "s2")))).state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"

    async def test_the_transport_is_switched_while_a_region_closes(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            region = min(one for one, name in owners.items() if name == "s1")
            closes = w.members["s1"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))
            await eventually(lambda: w.term.env.model.regions[region].state is RegionState.CLOSING)
            await w.die()
            w.noded = False
            await w.begin()
            await eventually(lambda: w.agents["s1"]._work.answers is None)
            closes.set()
            assert (await moving).state is State.SUCCESS
            assert w.owners()[region] in ("s1", "s2")
