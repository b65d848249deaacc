"""A term of office between its claim and its end: lost connections, doubts about the claim, and the end itself."""

from __future__ import annotations

import asyncio
import gc
import weakref
from unittest import mock

import pytest

from brokers.controller_listener import NotController
from brokers.delivery import ChannelFailed
from controller.event_queue import Event
from controller.office import Claim
from controller.reign import OUTRANKED, Reign
from metadata_store import paths
from metadata_store.port import ConnectionState
from tests.core.controller_world import UPDATE_METADATA, World, registration, world
from tests.core.virtual_time import VirtualTimeLoop, in_virtual_time
from tests.polling import eventually


async def running(w: World) -> None:
    """Topic t led by broker 1, and a term that has told everything."""
    await w.topic("t", (1, 2, 3), (1, 2, 3), leaders=True)
    await w.take_office()
    await w.told()


def session(w: World) -> int:
    return w.active.zk.session_id


# -- the same session again


@pytest.mark.seed("S4-75")
@in_virtual_time
async def test_what_was_missed_while_suspended_is_found_and_every_watch_is_armed_again() -> None:
    async with world() as w:
        await running(w)
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
        await w.told()
        assert w.led() == {
            ("t", 0): (2, (2, 3)), ("t", 1): (3, (3,)), ("t", 2): (3, (3, 2)), ("new", 0): (2, (2, 3)),
        }  # fmt: skip
        [port] = {e.port for b in w.wires.heard(2, UPDATE_METADATA)[-1].live_brokers for e in b.endpoints if b.id_ == 3 and e.listener == "INTERNAL"}  # noqa: E501
        assert port == 7000
        assert w.node(f"{paths.ISR_CHANGES}/isr_change_0000000000") is None
        w.agreed()

        await w.expand("new", (3, 2))
        await w.topic("newer", (3,))
        w.die(2)
        await w.leader_writes("t", 2, (3,), notify=True)
        await w.told()
        assert {leader for leader, _ in w.led().values()} == {3}
        assert ("new", 1) in w.led()
        assert ("newer", 0) in w.led()
        w.agreed()


@in_virtual_time
async def test_two_lost_connections_in_a_row_lose_no_event() -> None:
    async with world() as w:
        await running(w)
        w.server.suspend(session(w))
        await w.expand("t", (3, 2))
        w.server.resume(session(w))
        while not w.reign.controller.ready.is_set():
            await asyncio.sleep(0)
        w.server.blip(session(w))
        await eventually(lambda: ("t", 2) in w.led())
        await w.told()
        w.agreed()


@in_virtual_time
async def test_a_connection_that_comes_and_goes_is_compared_again_each_time() -> None:
    """Ready only if the claim was compared on the connection that stands."""
    async with world() as w:
        await running(w)
        for _ in range(40):
            w.server.blip(session(w))
            for _ in range(3):
                await asyncio.sleep(0)
        w.server.suspend(session(w))
        await asyncio.sleep(0.1)
        assert not w.reign.controller.ready.is_set()
        assert not w.reign.term.open()
        w.server.resume(session(w))
        await w.told()
        await w.seize()
        assert "another controller" in await w.active.ended(), "our own watches are armed"


@in_virtual_time
async def test_nothing_is_sent_between_reconnecting_and_comparing_the_claim() -> None:
    async with world() as w:
        await running(w)
        compared = asyncio.Event()
        really = w.active.office.is_ours

        async def slow(claim: Claim) -> bool:
            await compared.wait()
            return await really(claim)

        w.server.suspend(session(w))
        w.reign.channels.live_list_changed()
        frames = len(w.wires.frames)
        with mock.patch.object(w.active.office, "is_ours", slow):
            w.server.resume(session(w))
            await asyncio.sleep(1.0)
            assert w.active.zk.state is ConnectionState.CONNECTED
            assert not w.reign.term.open()
            assert len(w.wires.frames) == frames
            compared.set()
            await w.told()
        assert len(w.wires.frames) > frames
        assert w.wires.sent_while_closed == 0


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_foreign_claim_meanwhile_ends_the_term() -> None:
    async with world() as w:
        await running(w)
        w.server.suspend(session(w))
        await w.seize()
        w.die(1)
        before = w.led()
        w.server.resume(session(w))
        assert "no longer ours" in await w.active.ended()
        assert w.led() == before


@in_virtual_time
async def test_waiting_for_the_connection_costs_nothing() -> None:
    async with world() as w:
        await running(w)
        w.active.script.at("t/partitions/0/state", lambda: w.server.suspend(session(w)))
        w.die(1)
        await eventually(lambda: not w.reign.controller.ready.is_set())
        w.active.lease.answered(w.clock() + 1_000.0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        turns, began_s = loop.turns, loop.time()
        await asyncio.sleep(60.0)
        assert loop.time() - began_s >= 60.0
        assert loop.turns - turns < 60 * 300, "at most one look each 20 ms and wait, for the queue and for each channel"
        w.server.resume(session(w))
        await w.told()
        assert {leader for leader, _ in w.led().values()} == {2}


# -- the lease


@in_virtual_time
async def test_a_lease_that_runs_out_while_suspended_ends_the_term_at_once() -> None:
    async with world() as w:
        await running(w)
        waiting = asyncio.create_task(w.controlled_shutdown(1))
        w.server.suspend(session(w))
        w.clock.now_s += 10.0
        assert "lease ran out" in await w.active.ended(), "ZooKeeper may never be reached again: nobody waits for that"
        with pytest.raises(NotController):
            await waiting
        w.server.resume(session(w))
        assert w.led()["t", 0][0] == 1


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_pause_longer_than_the_lease_ends_the_term_although_the_session_survived() -> None:
    async with world() as w:
        await running(w)
        w.server.suspend(session(w))
        await asyncio.sleep(0)
        w.clock.now_s += 4.9
        w.server.resume(session(w))
        assert "lease ran out" in await w.active.ended()


@in_virtual_time
async def test_without_a_lease_nothing_is_written_or_sent_though_connected() -> None:
    async with world() as w:
        await running(w)
        w.clock.now_s += 4.81
        frames, zxid = len(w.wires.frames), w.server.tree.zxid
        w.reign.channels.live_list_changed()
        w.die(1)
        await asyncio.sleep(2.0)
        assert not w.reign.term.open()
        assert len(w.wires.frames) == frames
        assert w.server.tree.zxid == zxid + 1, "only the broker's own end"
        w.active.renew()
        await w.told()
        assert w.led()["t", 0] == (2, (2, 3))
        assert w.wires.sent_while_closed == 0


# -- the end


@in_virtual_time
async def test_a_lost_session_ends_the_term_before_the_loop_turns() -> None:
    async with world() as w:
        await running(w)
        reign = w.reign
        w.server.expire(session(w))
        assert reign.term.ended, "on the adapter's own thread"
        assert not reign.term.open()
        assert await w.active.ended() == "the ZooKeeper session is lost"


async def rewrite_controller(w: World) -> None:
    await w.operator.set(paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"0"}', -1)


async def delete_controller(w: World) -> None:
    await w.operator.delete(paths.CONTROLLER, -1)


async def raise_epoch(w: World) -> None:
    await w.operator.set(paths.CONTROLLER_EPOCH, b"99", -1)


@pytest.mark.parametrize("foreign", [rewrite_controller, delete_controller, raise_epoch, World.seize])
@in_virtual_time
async def test_whoever_else_writes_our_claim_ends_the_term(foreign) -> None:  # type: ignore[no-untyped-def]
    async with world() as w:
        await running(w)
        await foreign(w)
        assert "no longer ours" in await w.active.ended()


@in_virtual_time
async def test_a_watch_that_fired_for_nothing_is_armed_again() -> None:
    async with world() as w:
        await running(w)
        for _ in range(3):
            node = w.node(paths.CONTROLLER)
            assert node is not None
            await w.operator.set(paths.CONTROLLER, node.data, -1)
            await w.settle()
            assert not w.reign.term.ended
        await rewrite_controller(w)
        assert "no longer ours" in await w.active.ended()


@in_virtual_time
async def test_a_claim_lost_between_comparing_and_arming_is_seen() -> None:
    async with world() as w:
        await running(w)
        really = w.active.office.is_ours

        async def just_before(claim: Claim) -> bool:
            ours = await really(claim)
            await w.seize()
            await w.active.zk.heartbeat()
            return ours

        with mock.patch.object(w.active.office, "is_ours", just_before):
            w.server.blip(session(w))
            assert "no longer ours" in await w.active.ended()


@pytest.mark.seed("S4-86")
@in_virtual_time
async def test_a_broker_that_saw_a_higher_epoch_than_zookeeper_holds_stops_us() -> None:
    async with world() as w:
        await running(w)
        w.wires.errors[2] = 11
        w.die(1)
        assert await w.active.ended() == OUTRANKED
        assert w.counters.answers["UPDATE_METADATA: STALE_CONTROLLER_EPOCH (11)"] >= 1


@in_virtual_time
async def test_a_broker_that_obeys_our_successor_already_tells_us_that_there_is_one() -> None:
    async with world() as w:
        await running(w)
        w.server.hold_watches(session(w))
        await w.seize()
        w.wires.errors[2] = 11
        w.reign.channels.live_list_changed()
        assert "another controller was elected" in await w.active.ended()


@in_virtual_time
async def test_a_higher_epoch_reported_while_suspended_is_not_forgotten() -> None:
    async with world() as w:
        await running(w)
        w.wires.errors[2] = 11
        really = w.active.office.is_ours

        async def cut_off(claim: Claim) -> bool:
            w.active.office.is_ours = really  # type: ignore[method-assign]
            w.server.suspend(session(w))
            return await really(claim)

        w.active.office.is_ours = cut_off  # type: ignore[method-assign]
        w.reign.channels.live_list_changed()
        await eventually(lambda: not w.reign.controller.ready.is_set())
        assert not w.reign.term.ended
        w.server.resume(session(w))
        assert await w.active.ended() == OUTRANKED


@in_virtual_time
async def test_an_error_in_a_handler_ends_the_term() -> None:
    async with world() as w:
        await running(w)
        with mock.patch("controller.handlers.broker_change.compare", side_effect=ValueError("a bug")):
            w.die(1)
            assert await w.active.ended() == "error: ValueError: a bug"


@in_virtual_time
async def test_an_error_while_comparing_the_claim_ends_the_term_instead_of_waiting_for_ever() -> None:
    async with world() as w:
        await running(w)
        with mock.patch.object(w.active.office, "is_ours", side_effect=ValueError("a bug")):
            w.server.blip(session(w))
            assert await w.active.ended() == "error: ValueError: a bug"


@in_virtual_time
async def test_a_channel_that_failed_ends_the_term() -> None:
    async with world() as w:
        await running(w)
        w.reign._answered(ChannelFailed(2, "a bug"))
        assert await w.active.ended() == "error: the channel to broker 2 failed: a bug"


@in_virtual_time
async def test_a_parent_that_was_deleted_ends_the_term_and_the_next_one_creates_it() -> None:
    async with world() as w:
        await running(w)
        await w.operator.delete(paths.ISR_CHANGES, -1)
        why = await w.active.ended()
        assert why.startswith("error: /isr_change_notification was deleted")
        await w.active.begin()
        await w.settle()
        assert w.node(paths.ISR_CHANGES) is not None
        assert not w.reign.term.ended


@pytest.mark.parametrize("fault", ["suspend", "lose_replies", "lose_requests"])
@in_virtual_time
async def test_a_connection_lost_while_taking_office_ends_the_term_and_is_no_error(fault: str) -> None:
    async with world() as w:
        await w.topic("t", (1, 2), leaders=True)
        seat = await w.seat()
        seat.script.at(paths.FEATURE, lambda: getattr(w.server, fault)(seat.zk.session_id))
        await seat.begin()
        assert await seat.ended() == "the connection to ZooKeeper was lost while taking office"
        w.server.resume(seat.zk.session_id)
        await asyncio.sleep(0.1)
        await seat.begin()
        await w.settle()
        assert w.reign.in_office.is_set()


@in_virtual_time
async def test_callers_that_wait_and_callers_that_come_too_late_are_told() -> None:
    async with world() as w:
        await running(w)
        may_go_on = asyncio.Event()
        w.active.script.at("t/partitions/0/state", may_go_on.wait)
        w.die(1)
        await eventually(lambda: w.active.script.writes)
        waiting = [asyncio.create_task(w.producer_ids(2)), asyncio.create_task(w.controlled_shutdown(2))]
        await asyncio.sleep(0)
        w.reign.term.end("a test")
        for call in waiting:
            with pytest.raises(NotController):
                await call
        await w.active.ended()
        with pytest.raises(NotController):
            await w.producer_ids(2)
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        w.reign.queue.post(Event("settled", passed, preempt=lambda: passed.set_result(None)))
        assert passed.done()


@in_virtual_time
async def test_a_term_leaves_nothing_behind() -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), leaders=True)
        seat = await w.seat()
        before = asyncio.all_tasks()
        armed = []
        for _ in range(3):
            await seat.begin()
            await w.told()
            w.server.suspend(seat.zk.session_id)
            w.reign.term.end("a test")
            await seat.ended()
            w.server.resume(seat.zk.session_id)
            await asyncio.sleep(0.1)
            assert asyncio.all_tasks() <= before | {asyncio.current_task()}
            assert w.wires.open == 0
            armed.append(sum(map(len, (*w.server._data.values(), *w.server._children.values()))))
        assert len(set(armed)) == 1


@in_virtual_time
async def test_the_model_of_a_former_term_is_not_kept_in_memory() -> None:
    """Frozen objects are not collected: what the term before froze is thawed first."""

    async def one_term() -> weakref.ref[Reign]:
        seat = w.seats[0] if w.seats else await w.seat()
        await seat.begin()
        await w.told()
        w.reign.term.end("a test")
        await seat.ended()
        seat.zk.on_watch = seat.zk.on_state = seat.zk.on_state_thread = None
        found = weakref.ref(w.reign)
        seat.reign = seat.running = None
        w.wires.gate = lambda: True
        return found

    async with world() as w:
        await w.topic("t", (1, 2, 3), leaders=True)
        try:
            with mock.patch("controller.handlers.failover.gc", gc):
                first = await one_term()
                await one_term()
            assert first() is None
        finally:
            gc.unfreeze()
