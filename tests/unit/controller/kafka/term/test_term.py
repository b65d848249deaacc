"""A term of office and its connection: suspended, back again, and still without its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from controller.role.claim import Claim
from metadata_store import paths
from metadata_store.port import ConnectionState
from state_machines.journal.events import Kind
from tests.kit.deadlines import VirtualTimeLoop, eventually
from tests.kit.kafka.cluster import registration
from tests.kit.kafka.parts import UPDATE_METADATA
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.term.test_term_ends import delete_controller, raise_epoch, rewrite_controller


async def running(w: KafkaWorld) -> None:
    """Topic t led by broker 1, and a term that has told everything."""
    await w.topic("t", (1, 2, 3), (1, 2, 3), leaders=True)
    await w.serve()


def session(w: KafkaWorld) -> int:
    return w.active.zk.session_id


@pytest.mark.seed("S4-75")
@in_world(before=running)
async def test_what_was_missed_while_suspended_is_found_and_every_watch_is_armed_again(w: KafkaWorld) -> None:
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
async def test_two_lost_connections_in_a_row_lose_no_event(w: KafkaWorld) -> None:
    w.server.suspend(session(w))
    await w.expand("t", (3, 2))
    w.server.resume(session(w))
    await w.term.gate.ready.wait()
    w.server.reconnect(session(w))
    await eventually(lambda: ("t", 2) in w.leaders())
    await w.propagated()
    w.agreed()


@in_world(before=running)
async def test_a_connection_that_comes_and_goes_is_compared_again_each_time(w: KafkaWorld) -> None:
    """Ready only if the claim was compared on the connection that stands."""
    for _ in range(40):
        w.server.reconnect(session(w))
        for _ in range(3):
            await asyncio.sleep(0)
    w.server.suspend(session(w))
    await asyncio.sleep(0.1)
    assert not w.term.gate.ready.is_set()
    assert not w.term.gate.open()
    w.server.resume(session(w))
    await w.propagated()
    await w.seize()
    assert "another controller" in await w.active.ended(), "our own watches are armed"


@in_world(before=running)
async def test_nothing_is_sent_between_reconnecting_and_comparing_the_claim(w: KafkaWorld) -> None:
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
async def test_a_foreign_claim_meanwhile_ends_the_term(w: KafkaWorld) -> None:
    w.server.suspend(session(w))
    await w.seize()
    w.die(1)
    before = w.leaders()
    w.server.resume(session(w))
    assert "no longer ours" in await w.active.ended()
    assert w.leaders() == before


@in_world(before=running)
async def test_waiting_for_the_connection_costs_nothing(w: KafkaWorld) -> None:
    w.active.script.at("t/partitions/0/state", lambda: w.server.suspend(session(w)))
    w.die(1)
    await eventually(lambda: not w.term.gate.ready.is_set())
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
async def test_without_a_lease_nothing_is_written_or_sent_though_connected(w: KafkaWorld) -> None:
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


LEASE_S = 4.81


async def stand_still(w: KafkaWorld) -> None:
    """Loses the connection for longer than the lease."""
    w.server.suspend(session(w))
    await asyncio.sleep(0)
    w.clock.now_s += LEASE_S
    await eventually(lambda: w.term.stands_still)


async def go_on(w: KafkaWorld) -> None:
    """Brings the connection back, with the response to a heartbeat."""
    w.server.resume(session(w))
    w.active.renew()
    await eventually(lambda: not w.term.stands_still)
    await w.propagated()


@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_a_lease_that_runs_out_while_suspended_costs_no_term_where_the_session_survives(w: KafkaWorld) -> None:
    epoch = w.term.claim.epoch
    await stand_still(w)
    zxid, frames = w.server.tree.zxid, len(w.wires.frames)
    w.die(1)
    await w.topic("new", (2, 3))
    await asyncio.sleep(60.0)
    assert not w.term.gate.ended
    assert (w.leaders()["t", 0], len(w.wires.frames)) == ((1, (1, 2, 3)), frames), "nothing is written or sent"
    assert w.server.tree.zxid > zxid, "by others"
    await go_on(w)
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("new", 0): (2, (2, 3))}
    assert (w.term.claim.epoch, w.counters.standstills, w.wires.sent_while_closed) == (epoch, 1, 0)
    w.agreed()


@in_world(before=running)
async def test_callers_are_refused_from_the_end_of_the_lease_until_what_changed_was_read(w: KafkaWorld) -> None:
    w.server.suspend(session(w))
    first, waiting = (asyncio.create_task(w.controlled_shutdown(broker)) for broker in (1, 2))
    await eventually(lambda: len(w.term.queue) == 1)
    assert not waiting.done(), "a short outage refuses nobody"
    w.clock.now_s += LEASE_S
    with pytest.raises(NotController):
        await waiting
    with pytest.raises(NotController):
        await w.producer_ids(2)
    again, w.active.script.writes = asyncio.Event(), []
    really = w.term.rearm

    async def slow() -> None:
        await again.wait()
        await really()

    with mock.patch.object(w.term, "rearm", slow):
        w.server.resume(session(w))
        w.active.renew()
        await eventually(lambda: not w.term.stands_still and not len(w.term.queue))
        with pytest.raises(NotController):
            await w.producer_ids(2)
        again.set()
        await first
        await w.propagated()
    assert (await w.producer_ids(2)).error == 0
    assert {leader for leader, _ in w.leaders().values()} == {2}, "the call under way was carried out"


@in_world(before=running)
async def test_a_connection_alone_lets_nothing_go_on_before_a_heartbeat_has_its_response(w: KafkaWorld) -> None:
    await stand_still(w)
    w.term.channels.live_list_changed()
    frames = len(w.wires.frames)
    w.server.resume(session(w))
    w.die(1)
    await asyncio.sleep(10.0)
    assert w.active.zk.state is ConnectionState.CONNECTED
    assert (w.term.stands_still, w.term.gate.open(), len(w.wires.frames)) == (True, False, frames)
    assert w.leaders()["t", 0] == (1, (1, 2, 3))
    await go_on(w)
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert w.wires.sent_while_closed == 0


@in_world(before=running)
async def test_a_lease_alone_lets_nothing_go_on_before_the_claim_was_compared(w: KafkaWorld) -> None:
    """Also where the connection stands all the time: ZooKeeper answered no heartbeat."""
    compared, really = asyncio.Event(), w.active.role.is_ours

    async def slow(claim: Claim) -> bool:
        await compared.wait()
        return await really(claim)

    w.clock.now_s += LEASE_S
    await eventually(lambda: w.term.stands_still)
    with mock.patch.object(w.active.role, "is_ours", slow):
        w.active.renew()
        w.die(1)
        await asyncio.sleep(1.0)
        assert (w.term.gate.lease.valid(), w.term.gate.open()) == (True, False)
        compared.set()
        await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))
    assert (w.counters.standstills, w.wires.sent_while_closed) == (1, 0)


@pytest.mark.parametrize("foreign", [rewrite_controller, delete_controller, raise_epoch, KafkaWorld.seize])
@in_world(before=running)
async def test_another_claim_or_epoch_ends_a_term_that_stands_still(
    w: KafkaWorld, foreign: Callable[[KafkaWorld], Awaitable[object]]
) -> None:
    await stand_still(w)
    await foreign(w)
    w.die(1)
    before = w.leaders()
    w.server.resume(session(w))
    w.active.renew()
    assert "no longer ours" in await w.active.ended()
    assert (w.leaders(), w.wires.sent_while_closed) == (before, 0)


@in_world(before=running)
async def test_an_expired_session_ends_a_term_that_stands_still(w: KafkaWorld) -> None:
    await stand_still(w)
    w.server.expire(session(w))
    assert await w.active.ended() == "the ZooKeeper session is lost"


@in_world(before=running)
async def test_a_lease_that_runs_out_during_the_comparison_stops_it(w: KafkaWorld) -> None:
    really, compared = w.active.role.is_ours, 0

    async def slow(claim: Claim) -> bool:
        nonlocal compared
        compared += 1
        if compared == 1:
            w.clock.now_s += LEASE_S
        return await really(claim)

    await stand_still(w)
    with mock.patch.object(w.active.role, "is_ours", slow):
        w.server.resume(session(w))
        w.active.renew()
        await asyncio.sleep(5.0)
        assert (w.term.stands_still, compared) == (True, 1)
        w.active.renew()
        await eventually(lambda: not w.term.stands_still)
        assert compared == 2
    await w.propagated()


@in_world(before=running)
async def test_a_term_stands_still_each_time_that_its_lease_runs_out(w: KafkaWorld) -> None:
    for number in (1, 2, 3):
        await stand_still(w)
        await go_on(w)
        assert (w.counters.standstills, (await w.producer_ids(2)).error) == (number, 0)
    assert not w.term.gate.ended
    told = [row.why for row in w.book.rows() if row.kind is Kind.CTL_PHASE]
    assert [why.partition(":")[0] for why in told if why is not None][1:] == [
        "suspended", "ZooKeeper answers again, session and claim are unchanged",
    ] * 3  # fmt: skip


@in_world(before=running)
async def test_a_short_outage_is_not_journaled(w: KafkaWorld) -> None:
    w.server.reconnect(session(w))
    await w.propagated()
    assert sum(row.kind is Kind.CTL_PHASE for row in w.book.rows()) == 1
