"""Brokers that ask to stop or for producer ids, and calls that a failover cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest import mock

import pytest
from msgspec import Struct

from brokers.listener.controller_listener import NotController
from brokers.outbound.channels import Channels
from brokers.wire.calls import ControlledShutdownCall
from brokers.wire.errors import Error
from brokers.wire.messages import partitions as p
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from controller.kafka.path.controller import Controller
from controller.kafka.requests.calls import Calls
from metadata_store import paths
from metadata_store.acl import ALL
from metadata_store.codecs.cluster import ProducerIdBlock, encode_producer_ids
from state_machines.decisions.leader_election import ElectionError, ElectionType
from state_machines.decisions.reassignment import ReassignError
from tests.kit.deadlines import eventually
from tests.kit.kafka.calls import carried, create, grow, topic
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.partitions.test_handlers_isr import only, running


@pytest.mark.kafka("ControllerChannelManagerTest.testLeaderAndIsrRequestSentToLiveOrShuttingDownBrokers")
@pytest.mark.seed("S4-72", "S4-73", "S4-74", "S4-86")
@in_world(before=running)
async def test_a_broker_that_stops_leads_nothing_and_follows_nothing(w: KafkaWorld) -> None:
    reply = await w.controlled_shutdown(1)
    assert (reply.error, reply.remaining) == (Error.NONE, [])
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("u", 0): (1, (1,))}
    assert [multi[1:] for multi in w.active.script.writes] == [[paths.state("t", 0)], [paths.state("t", 1)]], (
        "new leaders are committed before followers are stopped"
    )
    assert w.wires.last_sent(2, LEADER_AND_ISR)["t", 0] == (2, 4), "the new leader knows before the broker goes"
    await w.propagated()
    assert w.wires.stopped(1) == {("t", 1)}
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0] == (2, 4), "it still hears of its leader (KAFKA-7482)"
    zxid = w.server.tree.zxid
    assert (await w.controlled_shutdown(1)).remaining == []
    assert w.server.tree.zxid == zxid, "asking again changes nothing"


@pytest.mark.seed("S4-72")
@in_world()
async def test_a_controlled_shutdown_waits_for_new_leaders_and_not_for_leaders_that_lose_a_follower(
    w: KafkaWorld,
) -> None:
    await w.topic("v", (1, 3), (2, 1), leaders=True)
    await running(w)
    rows, waited = w.term.cluster.rows, list[list[int]]()

    async def waits(wanted: Any, _timeout_s: float) -> frozenset[int]:
        waited.append([*wanted])
        return frozenset()

    with mock.patch.object(w.term.channels, "leaders_acknowledged", waits):
        await w.controlled_shutdown(1)
        await w.controlled_shutdown(1)
    moved, again = [{w.term.cluster.name(i) for i in wanted} for wanted in waited]
    assert moved == {("t", 0), ("v", 0)}
    assert again == {("t", 0), ("t", 1), ("v", 0), ("v", 1), ("u", 0)}, "asked again: it may still be under way"
    assert {rows[i].leader for i in waited[0]} == {2, 3}


@pytest.mark.seed("S4-72")
@in_world()
async def test_a_controlled_shutdown_returns_the_partitions_without_another_leader(w: KafkaWorld) -> None:
    await w.topic("alone", (1, 2), (1, 3), leaders=True, isr=(1,))
    await running(w)
    reply = await w.controlled_shutdown(1)
    assert reply.error == Error.NONE
    assert sorted(reply.remaining) == [("alone", 0), ("alone", 1)]
    assert w.leaders()["alone", 0] == (1, (1,)), "it leads on until it is gone"


@pytest.mark.kafka("ControllerIntegrationTest.testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch")
@pytest.mark.seed("S4-72", "S4-86")
@in_world(before=running)
async def test_controlled_shutdowns_of_a_former_incarnation_and_of_unknown_brokers_are_refused(w: KafkaWorld) -> None:
    former = w.broker_epoch(1)
    await w.bounce(1)
    await w.settle()
    before = w.leaders()
    assert (await w.controlled_shutdown(1, epoch=former)).error == Error.STALE_BROKER_EPOCH
    assert (await w.controlled_shutdown(9, epoch=1)).error == Error.BROKER_NOT_AVAILABLE
    assert (await w.controlled_shutdown(2, epoch=-1)).error == Error.STALE_BROKER_EPOCH, "it must know its epoch"
    assert w.leaders() == before


@pytest.mark.kafka("ControllerIntegrationTest.testShutdownBrokerNotAddedToIsr")
@in_world(before=running)
async def test_a_broker_that_stopped_and_came_back_is_live_again(w: KafkaWorld) -> None:
    await w.controlled_shutdown(1)
    w.die(1)
    await w.propagated()
    await w.boot(1)
    await w.propagated()
    assert 1 in w.term.cluster.live
    assert w.leaders()["u", 0][0] == 1
    assert only(await w.alter_partition(2, w.proposal("t", 0, (2, 3, 1)))).error == 0


@in_world(before=running)
async def test_a_silent_new_leader_delays_a_controlled_shutdown_by_a_bounded_time(w: KafkaWorld) -> None:
    async def unreachable(*_: Any) -> Any:
        await asyncio.sleep(3_600)

    with mock.patch("tests.kit.kafka.parts.Wire.exchange", unreachable):
        asked = asyncio.create_task(w.controlled_shutdown(1))
        other = asyncio.create_task(w.producer_ids(2))
        assert (await other).error == Error.NONE, "the queue goes on meanwhile"
        assert not asked.done()
        assert (await asyncio.wait_for(asked, 5.0)).remaining == []


@in_world(before=running)
async def test_a_controlled_shutdown_is_refused_if_the_term_ends_before_the_new_leaders_respond(w: KafkaWorld) -> None:
    async def never(*_: Any) -> None:
        await asyncio.sleep(3_600)

    with mock.patch.object(w.term.channels, "leaders_acknowledged", never):
        asked = asyncio.create_task(w.controlled_shutdown(1))
        await eventually(lambda: w.leaders()["t", 0][0] == 2)
        w.term.gate.end("a test")
        with pytest.raises(NotController):
            await asked


async def shut_by_operator(w: KafkaWorld, broker: int) -> None:
    """Shuts a broker down in its place; every broker has the change."""
    call = ControlledShutdownCall(3, broker, w.broker_epoch(broker))
    assert (await Calls(w.term.queue).controlled_shutdown(call, by_operator=True)).error == Error.NONE
    await w.propagated()
    w.forget()


@pytest.mark.seed("S4-73", "S4-80")
@in_world(before=running)
async def test_a_follower_that_its_leader_wants_back_during_a_shutdown_is_stopped_and_follows_after_the_undo(
    w: KafkaWorld,
) -> None:
    await shut_by_operator(w, 1)
    asked = w.proposal("t", 0, (2, 3, 1))
    assert only(await w.alter_partition(2, asked)).error == Error.INELIGIBLE_REPLICA
    await w.propagated()
    assert (w.leaders()["t", 0], w.states["t", 0].leader_epoch) == ((2, (2, 3)), 5)
    assert [w.wires.last_sent(b, LEADER_AND_ISR) for b in (2, 3)] == [{("t", 0): (2, 5)}] * 2
    assert not w.wires.requests(1, LEADER_AND_ISR), "the follower is not sent the epoch in which it stops"
    assert w.wires.stopped(1) == {("t", 0)}
    zxid = w.server.tree.zxid
    assert only(await w.alter_partition(2, asked)).error == Error.FENCED_LEADER_EPOCH
    assert w.server.tree.zxid == zxid
    assert await Calls(w.term.queue).undo_shutdown(1)
    await w.propagated()
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0] == (2, 5), "it is higher than the one that the broker knows"
    assert only(await w.alter_partition(2, w.proposal("t", 0, (2, 3, 1)))).error == Error.NONE


@pytest.mark.seed("S4-73", "S4-80")
@in_world(before=running)
async def test_a_new_term_lets_followers_follow_that_were_kept_out(w: KafkaWorld) -> None:
    await shut_by_operator(w, 1)
    await w.alter_partition(2, w.proposal("t", 0, (2, 3, 1)))
    await w.propagated()
    await w.seats[-1].crash()
    w.forget()
    seat = await w.seat()
    await seat.begin("3.9")
    await w.propagated()
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0] == (2, 5)


@pytest.mark.seed("S4-73", "S4-80")
@in_world(before=running)
async def test_a_follower_that_is_kept_out_stays_out_of_the_isr_that_another_wrote_first(w: KafkaWorld) -> None:
    await shut_by_operator(w, 1)
    w.active.script.at("t/partitions/0/state", lambda: w.leader_writes("t", 0, (2,)))
    await w.alter_partition(2, w.proposal("t", 0, (2, 3, 1)))
    await w.propagated()
    assert (w.leaders()["t", 0], w.states["t", 0].leader_epoch) == ((2, (2,)), 5)
    assert w.wires.stopped(1) == {("t", 0)}


@pytest.mark.seed("S4-73", "S4-80")
@in_world(before=running)
async def test_a_follower_whose_state_cannot_be_written_goes_on_until_the_next_request(w: KafkaWorld) -> None:
    """StopReplica in an epoch that the broker knows would stop it for good."""
    await shut_by_operator(w, 1)
    asked, path = w.proposal("t", 0, (2, 3, 1)), paths.state("t", 0)
    w.restrict(path)
    assert only(await w.alter_partition(2, asked)).error == Error.INELIGIBLE_REPLICA
    await w.propagated()
    assert (w.wires.stopped(1), w.states["t", 0].leader_epoch) == (set(), 4)
    w.restrict(path, ALL)
    await w.alter_partition(2, asked)
    await w.propagated()
    assert (w.wires.stopped(1), w.states["t", 0].leader_epoch) == ({("t", 0)}, 5)


@pytest.mark.seed("S4-87")
@in_world(before=running)
async def test_blocks_of_producer_ids_follow_each_other(w: KafkaWorld) -> None:
    found = [await w.producer_ids(broker) for broker in (1, 2, 3, 1)]
    assert [(reply.error, reply.start, reply.length) for reply in found] == [
        (0, start, 1000) for start in range(0, 4000, 1000)
    ]
    await w.operator.set(paths.PRODUCER_IDS, encode_producer_ids(ProducerIdBlock(2, 9_000, 9_999)), -1)
    assert (await w.producer_ids(2)).start == 10_000, "a broker below IBP 3.0 took one by itself"


@pytest.mark.seed("S4-87", "S4-86")
@in_world(before=running)
async def test_producer_ids_only_for_the_present_life_of_a_registered_broker(w: KafkaWorld) -> None:
    former = w.broker_epoch(1)
    await w.bounce(1)
    await w.settle()
    assert (await w.producer_ids(1, epoch=former)).error == Error.STALE_BROKER_EPOCH
    assert (await w.producer_ids(9, epoch=1)).error == Error.BROKER_ID_NOT_REGISTERED
    assert (await w.producer_ids(1)).start == 0


@pytest.mark.seed("S4-87")
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"broken", Error.UNKNOWN_SERVER_ERROR),
        (encode_producer_ids(ProducerIdBlock(1, 2**63 - 1001, 2**63 - 2)), Error.UNKNOWN_SERVER_ERROR),
    ],
    ids=["broken", "used up"],
)
@in_world(before=running)
async def test_producer_ids_that_cannot_be_given_end_no_term(w: KafkaWorld, data: bytes, error: Error) -> None:
    await w.operator.set(paths.PRODUCER_IDS, data, -1)
    assert (await w.producer_ids(1)).error == error
    await w.settle()
    assert not w.term.gate.ended
    node = w.node(paths.PRODUCER_IDS)
    assert node is not None
    assert node.data == data


@pytest.mark.seed("S4-87")
@in_world(before=running)
async def test_a_block_whose_outcome_is_unknown_is_skipped(w: KafkaWorld) -> None:
    w.server.lose_replies(w.active.zk.session_id)
    with pytest.raises(NotController):
        await w.producer_ids(1)
    await w.settle()
    assert (await w.producer_ids(1)).start == 1_000


PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def deletion(*names: str | bytes) -> t.DeleteTopicsRequest:
    named = [t.TopicToDelete(None, x) if isinstance(x, bytes) else t.TopicToDelete(x, ZERO_ID) for x in names]
    return t.DeleteTopicsRequest(30_000, (), tuple(named))


def election(kind: ElectionType, *partitions: int, name: str = "t") -> p.ElectLeadersRequest:
    return p.ElectLeadersRequest((p.TopicPartitions(name, partitions),), 30_000, int(kind))


def reassignment(*targets: tuple[int, ...] | None) -> p.AlterPartitionReassignmentsRequest:
    partitions = tuple(p.ReassignedPartition(at, target) for at, target in enumerate(targets))
    return p.AlterPartitionReassignmentsRequest(30_000, (p.ReassignedTopic("t", partitions),))


def errors(answer: Any) -> list[int]:
    """Error codes in the order of the answer."""
    match answer:
        case t.DeleteTopicsResponse():
            return [one.error_code for one in answer.responses]
        case p.ElectLeadersResponse():
            return [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]
    return [one.error_code for topic in answer.responses for one in topic.partitions]


async def running_repeated(w: KafkaWorld) -> None:
    """t-0 and t-1 are led by 3 although they prefer 1 and 2; u is led by its preferred replica."""
    await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True, led_by=3)
    await w.topic("u", (3, 1), leaders=True)
    await w.serve()


@pytest.mark.seed("S4-78")
@in_world(before=running_repeated)
async def test_a_deletion_that_an_earlier_attempt_finished_is_a_success(w: KafkaWorld) -> None:
    assert errors(await carried(w, deletion("t", id_of("u")))) == [0, 0]
    again = await carried(w, deletion("t", id_of("u")), attempt=1)
    assert [(one.name, one.topic_id, one.error_code) for one in again.responses] == [
        ("t", ZERO_ID, 0),
        (None, id_of("u"), 0),
    ]
    fresh = errors(await carried(w, deletion("t", id_of("u"))))
    assert fresh == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID]


@pytest.mark.seed("S4-70")
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@in_world(before=running_repeated)
async def test_an_election_that_an_earlier_attempt_held_is_a_success(w: KafkaWorld, kind: ElectionType) -> None:
    if kind is PREFERRED:
        assert errors(await carried(w, election(kind, 0))) == [0]
    assert errors(await carried(w, election(kind, 0), attempt=1)) == [0]
    assert errors(await carried(w, election(kind, 0))) == [ElectionError.ELECTION_NOT_NEEDED]
    assert errors(await carried(w, election(kind, 9), attempt=1)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]


@in_world(before=running_repeated)
async def test_the_success_of_an_earlier_attempt_waits_for_the_new_leader(w: KafkaWorld) -> None:
    waited: list[Sequence[int]] = []

    async def told(_: Channels, rows: Sequence[int], __: float) -> frozenset[int]:
        waited.append([w.term.cluster.rows[i].partition for i in rows])
        return frozenset()

    with mock.patch.object(Channels, "leaders_acknowledged", told):
        await carried(w, election(PREFERRED, 0))
        await carried(w, election(PREFERRED, 0, 1), attempt=1)
    assert waited == [[0], [0, 1]]


@pytest.mark.seed("S4-84")
@in_world(1, 2, 3, 4, before=running_repeated)
async def test_a_cancel_that_an_earlier_attempt_made_is_a_success(w: KafkaWorld) -> None:
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [0]
    assert errors(await carried(w, reassignment(None))) == [0]
    assert errors(await carried(w, reassignment(None), attempt=1)) == [0]
    assert errors(await carried(w, reassignment(None))) == [ReassignError.NO_REASSIGNMENT_IN_PROGRESS]


@pytest.mark.seed("S4-51")
@in_world(1, 2, 3, 4, before=running_repeated)
async def test_a_reassignment_that_an_earlier_attempt_began_is_a_success_although_its_broker_died_since(
    w: KafkaWorld,
) -> None:
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [0]
    w.die(4)
    await w.propagated()
    assert errors(await carried(w, reassignment((4, 2, 3)), attempt=1)) == [0]
    assert errors(await carried(w, reassignment((2, 4, 3)), attempt=1)) == [ReassignError.INVALID_REPLICA_ASSIGNMENT]
    assert errors(await carried(w, reassignment((4, 2, 3)))) == [ReassignError.INVALID_REPLICA_ASSIGNMENT]


CALLS: dict[str, Struct | Callable[[KafkaWorld], Awaitable[Any]]] = {
    "DeleteTopics": deletion("t"),
    "ElectLeaders": election(PREFERRED, 0),
    "CreateTopics": create(topic("new", 1, 1)),
    "CreatePartitions": grow("t", 3),
    "ControlledShutdown": lambda w: w.controlled_shutdown(1),
}


@pytest.mark.parametrize("name", CALLS)
@in_world(before=running_repeated)
async def test_a_call_whose_term_ends_before_its_waiter_begins_is_refused(w: KafkaWorld, name: str) -> None:
    spawn = Controller.spawn

    def and_end(c: Controller, *args: Any, **options: Any) -> None:
        before = set(c._beside)
        spawn(c, *args, **options)
        for waiter in c._beside - before:
            waiter.cancel()
        c.gate.end("a test")

    asked = CALLS[name]
    with mock.patch.object(Controller, "spawn", and_end):
        call = carried(w, asked) if isinstance(asked, Struct) else asked(w)
        with pytest.raises(NotController):
            await asyncio.wait_for(call, 5.0)
