"""What the ephemeral znodes of servers decide: whether a term is a start, and that a silent process has crashed."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace

from controller.regions.procedures import move
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.catalog.unassigned import encode, path_of
from metadata_store.errors import Code, ZkError
from state_machines.procedures.states import State
from state_machines.regions.states import ServerState
from state_machines.regions.unassigned import Node, NodeState
from tests.contracts.regions_transports import COUNT, created
from tests.contracts.support import Backend
from tests.kit.deadlines import eventually
from tests.kit.regions.transports import OPTIONS, TransportsWorld, world

SLOW = replace(OPTIONS, lease_ms=5_000)


def said(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in one.getMessage() for one in caplog.records)


async def opening(w: TransportsWorld, region: int) -> bool:
    found = (await w.nodes()).get(region)
    return found is not None and found.state is NodeState.OPENING


class PresenceContract:
    """Each story ends with each region at one owner that serves, as the catalog says, and without a znode."""

    @pytest.mark.seed("S0-1", "S0-3", "S0-9", "S0-81")
    async def test_a_start_deletes_all_znodes_before_it_assigns_and_then_does_as_ever(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        async with world(backend.client, "s1", "s2", noded=True) as w:
            regions = sorted(await created(w))
            await w.die()
            for name in ("s1", "s2"):
                await w.kill(name)
            states = (NodeState.OFFLINE, NodeState.OPENING, NodeState.CLOSING, NodeState.CLOSED)
            for region, state in zip(regions, states, strict=False):
                await w.zk.create(path_of(ROOT, region), encode(Node(state, region, 1, 10**6, "s1", 1)))
            await w.zk.create(path_of(ROOT, regions[4]), b"garbage")
            await w.begin()
            assert said(caplog, "this term is taken for a start: 0 servers have a znode")
            assert await w.nodes() == {}, "no server is there yet, and nothing is opened"
            for name in ("s1", "s2"):
                await w.start(name, 2)
            owners = await w.settled(COUNT)
            await w.run(move.NAME, MOVE.encode(Move(regions[0], "t", "s2" if owners[regions[0]] == "s1" else "s1")))
            assert (await w.settled(COUNT))[regions[0]] != owners[regions[0]]

    @pytest.mark.seed("S0-1")
    async def test_a_term_that_finds_servers_is_a_failover_and_deletes_nothing(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        async with world(backend.client, "s1", "s2", noded=True) as w:
            region = min(one for one, name in (await created(w)).items() if name == "s1")
            opens = w.members["s2"].held[region] = asyncio.Event()
            moving = asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(region, "t", "s2"))))
            await eventually(lambda: opening(w, region))
            await eventually(lambda: len(w.nodes_of_term.servers.present) == 2)
            await w.die()
            await w.begin()
            assert said(caplog, "this term is taken for a failover: 2 servers have a znode")
            assert await opening(w, region)
            opens.set()
            assert (await moving).state is State.SUCCESS
            assert (await w.settled(COUNT))[region] == "s2"

    @pytest.mark.seed("S0-1", "S0-9")
    async def test_a_failover_that_is_taken_for_a_start_ends_the_same(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Servers serve whose sessions have ended, or that make no znode: their answers stay (C10)."""
        caplog.set_level(logging.INFO)
        async with world(backend.client, noded=True) as w:
            for name in ("s1", "s2"):
                await w.start(name, appears=False)
            owners = await created(w)
            [first, second] = [one for one, name in sorted(owners.items()) if name == "s1"][:2]
            opens = w.members["s2"].held[first] = asyncio.Event()
            moves = [
                asyncio.ensure_future(w.run(move.NAME, MOVE.encode(Move(one, "t", "s2")))) for one in (first, second)
            ]
            await eventually(lambda: opening(w, first))
            await w.die()
            await w.begin()
            assert said(caplog, "this term is taken for a start: 0 servers have a znode")
            opens.set()
            assert [one.state for one in await asyncio.gather(*moves)] == [State.SUCCESS] * 2
            found = await w.settled(COUNT)
            assert found[second] == "s2"

    @pytest.mark.seed("S0-53")
    async def test_a_process_whose_znode_has_ended_and_that_does_not_poll_has_crashed(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its regions wait for the end of its lease all the same."""
        caplog.set_level(logging.INFO)
        async with world(backend.client, "s1", "s2", "s3", noded=True, options=SLOW) as w:
            await created(w)
            server = next(one for one in w.term.env.model.servers.values() if one.name == "s1")
            await eventually(lambda: server.key in w.nodes_of_term.servers.present)
            await w.kill("s1")
            await eventually(lambda: server.state is not ServerState.ONLINE)
            assert set((await w.settled(COUNT)).values()) == {"s2", "s3"}
        lines = [one.getMessage() for one in caplog.records if "server s1,1 is " in one.getMessage()]
        assert "is CRASHED with 2 regions: its ephemeral znode has ended, and no poll has come since" in lines[1]
        assert "is FENCED with 2 regions: its lease ran out" in lines[2], "until then no other server gets them"

    @pytest.mark.seed("S0-53")
    async def test_a_process_that_polls_lives_whatever_became_of_its_session(self, backend: Backend) -> None:
        async with world(backend.client, "s1", "s2", noded=True, options=SLOW) as w:
            owners = await created(w)
            silence = w.term.manager.silence
            servers, seen = w.nodes_of_term.servers, list[tuple[str, int]]()

            def gone(key: tuple[str, int]) -> None:
                seen.append(key)
                w.term.manager.absent(key)

            servers.gone = gone
            await eventually(lambda: len(servers.present) == 2)
            await w.sessions["s1"].close()
            await eventually(lambda: seen)
            await eventually(lambda: not silence.absent)
            assert {one.state for one in w.term.env.model.servers.values()} == {ServerState.ONLINE}
            assert await w.settled(COUNT) == owners

    async def test_a_server_whose_znode_is_refused_serves_all_the_same(
        self, backend: Backend, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def refused(self: NodeAnswers) -> None:
            raise ZkError(Code.NO_AUTH, "/regent/regions/rs")

        monkeypatch.setattr(NodeAnswers, "appears", refused)
        async with world(backend.client, "s1", "s2", noded=True) as w:
            owners = await created(w)
            assert set(owners.values()) == {"s1", "s2"}
            assert said(caplog, "no znode tells that server s1 lives, so its lease alone does")
            assert w.nodes_of_term.servers.present == frozenset()
