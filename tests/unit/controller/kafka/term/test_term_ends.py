"""What ends a term, at once and from wherever, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from brokers.outbound.delivery import ChannelFailed
from brokers.wire.messages.security import AlterUserScramCredentialsRequest, ScramUpsertion
from controller.kafka.path.events import Event, EventKind
from controller.kafka.path.gate import weakly
from controller.kafka.term.claim_monitor import OUTRANKED
from controller.role.claim import Claim
from metadata_store import paths
from state_machines.decisions.leader_election import ElectionType
from tests.kit.deadlines import eventually, in_exact_time, in_virtual_time
from tests.kit.kafka.calls import carried, create, grow, topic
from tests.kit.kafka.foreign_writes import ACTS, REASSIGNMENT, Interruption, prepared
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.reassignments import alter
from tests.kit.kafka.world import KafkaWorld, in_world, world


async def running(w: KafkaWorld) -> None:
    """Topic t led by broker 1, and a term that has told everything."""
    await w.topic("t", (1, 2, 3), (1, 2, 3), leaders=True)
    await w.serve()


def session(w: KafkaWorld) -> int:
    return w.active.zk.session_id


@in_world(before=running)
async def test_a_lost_session_ends_the_term_before_the_loop_turns(w: KafkaWorld) -> None:
    term = w.term
    w.server.expire(session(w))
    assert term.gate.ended, "on the adapter's own thread"
    assert not term.gate.open()
    assert await w.active.ended() == "the ZooKeeper session is lost"


async def rewrite_controller(w: KafkaWorld) -> None:
    await w.operator.set(paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"0"}', -1)


async def delete_controller(w: KafkaWorld) -> None:
    await w.operator.delete(paths.CONTROLLER, -1)


async def raise_epoch(w: KafkaWorld) -> None:
    await w.operator.set(paths.CONTROLLER_EPOCH, b"99", -1)


@pytest.mark.parametrize("foreign", [rewrite_controller, delete_controller, raise_epoch, KafkaWorld.seize])
@in_world(before=running)
async def test_a_foreign_write_of_the_claim_ends_the_term(w: KafkaWorld, foreign) -> None:  # type: ignore[no-untyped-def]
    await foreign(w)
    assert "no longer ours" in await w.active.ended()


@in_world(before=running)
async def test_a_watch_that_fired_for_nothing_is_armed_again(w: KafkaWorld) -> None:
    for _ in range(3):
        node = w.node(paths.CONTROLLER)
        assert node is not None
        await w.operator.set(paths.CONTROLLER, node.data, -1)
        await w.settle()
        assert not w.term.gate.ended
    await rewrite_controller(w)
    assert "no longer ours" in await w.active.ended()


@in_world(before=running)
async def test_a_claim_lost_between_comparing_and_arming_is_seen(w: KafkaWorld) -> None:
    really = w.active.role.is_ours

    async def just_before(claim: Claim) -> bool:
        ours = await really(claim)
        await w.seize()
        await w.active.zk.heartbeat()
        return ours

    with mock.patch.object(w.active.role, "is_ours", just_before):
        w.server.reconnect(session(w))
        assert "no longer ours" in await w.active.ended()


@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_most_brokers_that_saw_a_higher_epoch_than_zookeeper_holds_stop_us(w: KafkaWorld) -> None:
    w.wires.errors[2] = w.wires.errors[3] = 11
    w.die(1)
    assert await w.active.ended() == OUTRANKED
    assert w.counters.answers["UPDATE_METADATA: STALE_CONTROLLER_EPOCH (11)"] >= 1


@in_world(before=running)
async def test_one_broker_that_saw_a_higher_epoch_is_named_and_the_others_are_controlled(
    w: KafkaWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    w.wires.errors[2] = 11
    for _ in range(20):
        w.term.channels.live_list_changed()
        await asyncio.sleep(1.0)
    assert w.term.outranked.brokers == [2]
    w.die(1)
    await eventually(lambda: w.leaders()["t", 0] == (3, (2, 3)))
    await asyncio.sleep(60.0)
    assert not w.term.gate.ended, "one of two is not most of them"
    w.die(3)
    await eventually(lambda: not w.term.cluster.brokers.keys() - {2})
    w.term.channels.live_list_changed()
    await asyncio.sleep(60.0)
    assert not w.term.gate.ended, "nor is the only live one of three: the others come back"
    said = [line for line in caplog.messages if "restart that broker" in line]
    assert len(said) == 1, "once, not at each answer"
    assert said[0].startswith("broker 2 answers STALE_CONTROLLER_EPOCH")
    w.wires.errors.clear()
    await w.bounce(2)
    await eventually(lambda: w.term.outranked.brokers == [])


@in_world(1)
async def test_the_only_broker_of_a_cluster_stops_us(w: KafkaWorld) -> None:
    await w.topic("t", (1,), leaders=True)
    await w.serve()
    w.wires.errors[1] = 11
    w.term.channels.live_list_changed()
    assert await w.active.ended() == OUTRANKED


@in_world(before=running)
async def test_a_broker_that_obeys_the_successor_ends_the_term(w: KafkaWorld) -> None:
    w.server.hold_watches(session(w))
    await w.seize()
    w.wires.errors[2] = 11
    w.term.channels.live_list_changed()
    assert "another controller was elected" in await w.active.ended()


@in_world(before=running)
async def test_a_higher_epoch_reported_while_suspended_is_not_forgotten(w: KafkaWorld) -> None:
    w.wires.errors[2] = w.wires.errors[3] = 11
    really = w.active.role.is_ours

    async def cut_off(claim: Claim) -> bool:
        w.active.role.is_ours = really  # type: ignore[method-assign]
        w.server.suspend(session(w))
        return await really(claim)

    w.active.role.is_ours = cut_off  # type: ignore[method-assign]
    w.term.channels.live_list_changed()
    await eventually(lambda: not w.term.gate.ready.is_set())
    assert not w.term.gate.ended
    w.server.resume(session(w))
    assert await w.active.ended() == OUTRANKED


@pytest.mark.kafka("ControllerFailoverTest.testHandleIllegalStateException")
@in_world(before=running)
async def test_an_error_in_a_handler_ends_the_term(w: KafkaWorld) -> None:
    with mock.patch("controller.kafka.brokers.broker_change.compare", side_effect=ValueError("a bug")):
        w.die(1)
        assert await w.active.ended() == "error: ValueError: a bug"


@in_virtual_time
async def test_an_error_beside_the_queue_is_logged_and_ends_no_term(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    async with world() as w:
        await running(w)
        w.term.controller.spawn(broken())
        await w.settle()
        assert "an error beside the queue: a bug" in caplog.text
        assert not w.term.gate.ended


@in_world(before=running)
async def test_an_error_while_comparing_the_claim_ends_the_term_instead_of_waiting_for_ever(w: KafkaWorld) -> None:
    with mock.patch.object(w.active.role, "is_ours", side_effect=ValueError("a bug")):
        w.server.reconnect(session(w))
        assert await w.active.ended() == "error: ValueError: a bug"


@in_world(before=running)
async def test_a_channel_that_failed_ends_the_term(w: KafkaWorld) -> None:
    w.witness.receive(ChannelFailed(2, "a bug"))
    assert await w.active.ended() == "error: the channel to broker 2 failed: a bug"


@in_world(before=running)
async def test_a_parent_that_was_deleted_ends_the_term_and_the_next_one_creates_it(w: KafkaWorld) -> None:
    await w.operator.delete(paths.ISR_CHANGES, -1)
    why = await w.active.ended()
    assert why.startswith("error: /isr_change_notification was deleted")
    await w.active.begin()
    await w.settle()
    assert w.node(paths.ISR_CHANGES) is not None
    assert not w.term.gate.ended


@pytest.mark.parametrize("fault", ["suspend", "lose_replies", "lose_requests"])
@in_world()
async def test_a_connection_lost_at_the_begin_of_a_term_ends_it_and_is_no_error(w: KafkaWorld, fault: str) -> None:
    await w.topic("t", (1, 2), leaders=True)
    seat = await w.seat()
    seat.script.at(paths.FEATURE, lambda: getattr(w.server, fault)(seat.zk.session_id))
    await seat.begin()
    assert await seat.ended() == "the connection to ZooKeeper was lost while taking office"
    w.server.resume(seat.zk.session_id)
    await asyncio.sleep(0.1)
    await seat.begin()
    await w.settle()
    assert w.term.serving.is_set()


@pytest.mark.kafka("ControllerIntegrationTest.testPreemptionWithCallbacks")
@in_world(before=running)
async def test_waiting_and_later_calls_are_refused_after_the_end_of_a_term(w: KafkaWorld) -> None:
    may_go_on = asyncio.Event()
    w.active.script.at("t/partitions/0/state", may_go_on.wait)
    w.die(1)
    await eventually(lambda: w.active.script.writes)
    waiting = [asyncio.create_task(w.producer_ids(2)), asyncio.create_task(w.controlled_shutdown(2))]
    await asyncio.sleep(0)
    w.term.gate.end("a test")
    for call in waiting:
        with pytest.raises(NotController):
            await call
    await w.active.ended()
    with pytest.raises(NotController):
        await w.producer_ids(2)
    passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    w.term.queue.post(Event(EventKind.SETTLED, passed, preempt=lambda: passed.set_result(None)))
    assert passed.done()


@in_world()
async def test_a_term_leaves_nothing_behind(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    seat = await w.seat()
    before = asyncio.all_tasks()
    armed = []
    for _ in range(3):
        await seat.begin()
        await w.propagated()
        w.server.suspend(seat.zk.session_id)
        w.term.gate.end("a test")
        await seat.ended()
        w.server.resume(seat.zk.session_id)
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() <= before | {asyncio.current_task()}
        assert w.wires.open == 0
        armed.append(len(w.server.watches))
    assert len(set(armed)) == 1


@in_world()
async def test_the_model_of_a_former_term_is_not_kept_in_memory(w: KafkaWorld) -> None:
    """Frozen objects are not collected, so it goes without the collector, and before the next term begins."""
    await w.topic("t", (1, 2, 3), leaders=True)
    seat = await w.seat()
    gc.disable()
    try:
        await seat.begin()
        await w.propagated()
        w.die(1)
        await w.propagated()
        known = [weakref.ref(part) for part in (w.term, w.term.cluster, w.term.channels, w.term.controller)]
        w.term.gate.end("a test")
        await seat.ended()
        seat.zk.on_watch = seat.zk.on_state = seat.zk.on_state_thread = None
        seat.term = seat.running = None
        w.wires.gate = lambda: True
        assert [part() for part in known] == [None] * 4
    finally:
        gc.enable()


def test_a_callback_into_a_term_that_is_gone_returns_the_default() -> None:
    class Connection:
        def stands(self, _asked: str) -> bool:
            return True

    connection = Connection()
    connected = weakly(connection.stands, False)
    assert connected("now") is True
    del connection
    assert connected("later") is False


@in_virtual_time
async def test_what_was_frozen_in_a_term_before_is_thawed_in_the_next_one() -> None:
    class Kept:
        """Something that only the collector can free."""

        def __init__(self) -> None:
            self.itself = self

    async with world() as w:
        seat = await w.seat()
        with mock.patch("controller.kafka.term.failover.gc", gc):
            kept = weakref.ref(Kept())
            gc.freeze()
            gc.collect()
            assert kept() is not None
            await seat.begin()
            await w.propagated()
        assert kept() is None


Call = Callable[[KafkaWorld], Awaitable[Any]]
SCRAM: Final = AlterUserScramCredentialsRequest((), (ScramUpsertion("u", 1, 4_096, b"salt", bytes(32)),))
CALLS: Final[dict[str, Call]] = {
    "AlterPartition": lambda w: w.alter_partition(2, w.proposal("t", 1, isr=(2,))),
    "AllocateProducerIds": lambda w: w.producer_ids(2),
    "ControlledShutdown": lambda w: w.controlled_shutdown(3),
    "AlterUserScramCredentials": lambda w: carried(w, SCRAM),
    "CreateTopics": lambda w: carried(w, create(topic("n", 2, 2))),
    "CreatePartitions": lambda w: carried(w, grow("t", 4)),
    "DeleteTopics": lambda w: w.delete_topics("t"),
    "ElectLeaders": lambda w: w.elect(ElectionType.PREFERRED, ("v", 0)),
    "AlterPartitionReassignments": lambda w: alter(w, {("t", 0): (1, 4)}),
}


async def recreated(w: KafkaWorld) -> None:
    """A topic is another one before the daemon's watches fire."""
    w.server.hold_watches(w.active.zk.session_id)
    await w.delete_topic("u")
    await w.topic("u", (3, 1), leaders=True, topic_id=b"another topic id")
    w.server.release_watches(w.active.zk.session_id)


EVENTS: Final[dict[str, Call]] = {
    "a broker dies": ACTS["a broker dies"],
    "a broker registers": ACTS["a broker registers"],
    "a leader shrinks an ISR": ACTS["a leader shrinks an ISR"],
    "a topic grows": ACTS["a topic grows"],
    "a topic vanishes": lambda w: w.delete_topic("u"),
    "a topic is recreated": recreated,
    "a topic is created": ACTS["a topic is created"],
    "a topic names a daemon": lambda w: w.topic("auto", (1, DAEMON)),
    "a topic is to be deleted": ACTS["a topic is to be deleted"],
    "a reassignment is requested": lambda w: w.operator.create(paths.REASSIGN_PARTITIONS, REASSIGNMENT),
    "preferred leaders are requested": ACTS["preferred leaders are requested"],
    "a log directory fails": ACTS["a log directory fails"],
}


def state(w: KafkaWorld) -> tuple[Any, ...]:
    """The model of the term, and how much it has written."""
    cluster = w.term.cluster
    model = list(cluster.rows), dict(cluster.topic_index), dict(cluster.brokers), set(cluster.deletions)
    return (*model, dict(cluster.reassigning), len(w.active.script.writes))


async def ended_at(number: int, event: Call, *, is_call: bool) -> bool:
    """Has the term end at a request; returns whether there was such a request."""
    before: tuple[Any, ...] | None = None
    responses: list[object] = []
    responded = 0

    async def end(w: KafkaWorld) -> None:
        nonlocal before, responded
        for _ in range(3):
            await asyncio.sleep(0)  # a response that was given before the end arrives
        responded = len(responses)
        w.term.gate.end("a test")
        before = state(w)

    async def call(w: KafkaWorld) -> None:
        responses.append(await event(w))

    async with world(1, 2, 3, 4) as w:
        await prepared(w)
        Interruption(w, number, end)
        with suppress(NotController):
            await (call if is_call else event)(w)
        await w.settle()
        if before is None:
            return False
        await w.active.ended()
        await asyncio.sleep(1.0)
        assert state(w) == before, f"at request {number}"
        assert len(responses) == responded, f"a call has a response although the term ended at request {number}"
        assert w.wires.sent_while_closed == 0
        return True


@pytest.mark.parametrize("name", [*CALLS, *EVENTS])
@in_exact_time
async def test_a_term_that_ends_at_any_request_of_a_handler_does_nothing_more(name: str) -> None:
    event = CALLS.get(name) or EVENTS[name]
    number = 1
    while await ended_at(number, event, is_call=name in CALLS):
        number += 1
    assert number > 1
