"""A term of office and its connection: suspended and back again; and the lease."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from controller.role.claim import Claim
from metadata_store import paths
from metadata_store.port import ConnectionState
from tests.kit.controller_kafka import registration
from tests.kit.controller_parts import UPDATE_METADATA
from tests.kit.controller_world import World, in_world
from tests.kit.polling import eventually
from tests.kit.virtual_time import VirtualTimeLoop


async def running(w: World) -> None:
    """Topic t led by broker 1, and a term that has told everything."""
    await w.topic("t", (1, 2, 3), (1, 2, 3), leaders=True)
    await w.serve()


def session(w: World) -> int:
    return w.active.zk.session_id


@pytest.mark.seed("S4-75")
@in_world(before=running)
async def test_what_was_missed_while_suspended_is_found_and_every_watch_is_armed_again(w: World) -> None:
    w.server.suspend(session(w))
    w.die(1)
    await w.topic("new", (2, 3))
    await w.expand("t", (3, 2))
    await w.operator.set(paths.broker(3), registration(3, port=7000), 0)
    await w.leader_writes("t", 1, (1, 3), notify=True)
    zxid, frames = w.server.tree.zxid, len(w.wires.frames)
    await asyncio.sleep(3.0)
    assert (w.server.tree.zxid, len(w.wires.frames)) == (zxid, frames), "nothing is written or sent meanwhile"
    w.server.resume(session(w))
    await w.propagated()
    assert w.leaders() == {
        ("t", 0): (2, (2, 3)), ("t", 1): (3, (3,)), ("t", 2): (3, (3, 2)), ("new", 0): (2, (2, 3)),
    }  # fmt: skip
    [port] = {
        e.port
        for b in w.wires.requests(2, UPDATE_METADATA)[-1].live_brokers
        for e in b.endpoints
        if b.id_ == 3 and e.listener == "INTERNAL"
    }
    assert port == 7000
    assert w.node(f"{paths.ISR_CHANGES}/isr_change_0000000000") is None
    w.agreed()

    await w.expand("new", (3, 2))
    await w.topic("newer", (3,))
    w.die(2)
    await w.leader_writes("t", 2, (3,), notify=True)
    await w.propagated()
    assert {leader for leader, _ in w.leaders().values()} == {3}
    assert ("new", 1) in w.leaders()
    assert ("newer", 0) in w.leaders()
    w.agreed()


@in_world(before=running)
async def test_two_lost_connections_in_a_row_lose_no_event(w: World) -> None:
    w.server.suspend(session(w))
    await w.expand("t", (3, 2))
    w.server.resume(session(w))
    await w.term.controller.ready.wait()
    w.server.reconnect(session(w))
    await eventually(lambda: ("t", 2) in w.leaders())
    await w.propagated()
    w.agreed()


@in_world(before=running)
async def test_a_connection_that_comes_and_goes_is_compared_again_each_time(w: World) -> None:
    """Ready only if the claim was compared on the connection that stands."""
    for _ in range(40):
        w.server.reconnect(session(w))
        for _ in range(3):
            await asyncio.sleep(0)
    w.server.suspend(session(w))
    await asyncio.sleep(0.1)
    assert not w.term.controller.ready.is_set()
    assert not w.term.gate.open()
    w.server.resume(session(w))
    await w.propagated()
    await w.seize()
    assert "another controller" in await w.active.ended(), "our own watches are armed"


@in_world(before=running)
async def test_nothing_is_sent_between_reconnecting_and_comparing_the_claim(w: World) -> None:
    compared = asyncio.Event()
    really = w.active.role.is_ours

    async def slow(claim: Claim) -> bool:
        await compared.wait()
        return await really(claim)

    w.server.suspend(session(w))
    w.term.channels.live_list_changed()
    frames = len(w.wires.frames)
    with mock.patch.object(w.active.role, "is_ours", slow):
        w.server.resume(session(w))
        await asyncio.sleep(1.0)
        assert w.active.zk.state is ConnectionState.CONNECTED
        assert not w.term.gate.open()
        assert len(w.wires.frames) == frames
        compared.set()
        await w.propagated()
    assert len(w.wires.frames) > frames
    assert w.wires.sent_while_closed == 0


@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_a_foreign_claim_meanwhile_ends_the_term(w: World) -> None:
    w.server.suspend(session(w))
    await w.seize()
    w.die(1)
    before = w.leaders()
    w.server.resume(session(w))
    assert "no longer ours" in await w.active.ended()
    assert w.leaders() == before


@in_world(before=running)
async def test_waiting_for_the_connection_costs_nothing(w: World) -> None:
    w.active.script.at("t/partitions/0/state", lambda: w.server.suspend(session(w)))
    w.die(1)
    await eventually(lambda: not w.term.controller.ready.is_set())
    w.active.lease.answered(w.clock() + 1_000.0)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    turns, began_s = loop.turns, loop.time()
    await asyncio.sleep(60.0)
    assert loop.time() - began_s == pytest.approx(60.0, abs=0.1)
    assert loop.turns - turns < 60 * 300, "at most one look each 20 ms and wait, for the queue and for each channel"
    w.server.resume(session(w))
    await w.propagated()
    assert {leader for leader, _ in w.leaders().values()} == {2}


@in_world(before=running)
async def test_without_a_lease_nothing_is_written_or_sent_though_connected(w: World) -> None:
    w.clock.now_s += 4.81
    frames, zxid = len(w.wires.frames), w.server.tree.zxid
    w.term.channels.live_list_changed()
    w.die(1)
    await asyncio.sleep(2.0)
    assert not w.term.gate.open()
    assert len(w.wires.frames) == frames
    assert w.server.tree.zxid == zxid + 1, "only the broker's own end"
    w.active.renew()
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.wires.sent_while_closed == 0
