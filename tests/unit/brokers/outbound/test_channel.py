"""One channel: contents and order of its requests, batches, former topics, and the responses that it reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from brokers.outbound import channel
from brokers.outbound.delivery import BrokerResponse
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Assignment, Endpoint, TopicAssignment
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from tests.kit.kafka.channels import (
    CONTROLLER,
    OWN,
    ChannelsWorld,
    in_flight,
    knows_the_model,
    nothing_for,
    settled,
    stop,
    stopped_clock,
    world,
)
from tests.kit.kafka.model import topic_gone
from tests.kit.wire import part, to_uuid

OLD_AND_NEW = [("2.7-IV1", 4), ("3.9", 7)]
"""IBPs with the versions of LeaderAndIsr: the older one names topics, the newer one their ids."""


# -- the live list


@pytest.mark.seed("S4-47", "S4-76")
async def test_the_first_requests_are_the_live_list_then_leadership_then_metadata() -> None:
    async with world(1, 2) as w:
        w.add_topic("t", [(1, 2), (2, 1), (2,)])
        w.channels.snapshot()
        await settled(w)
        assert w.one.apis() == "ULu"
        assert [request.correlation for request in w.one.requests] == [1, 2, 3]
        for broker in w.brokers.values():
            knows_the_model(w, broker)
        leaders = w.one.of(LEADER_AND_ISR)[0]
        assert leaders.partitions() == [("t", 0), ("t", 1)]
        assert (leaders.version, leaders.entity.broker_epoch) == (7, 101)
        assert (leaders.entity.controller_id, leaders.entity.controller_epoch) == (CONTROLLER, 7)


@pytest.mark.seed("S4-76")
@pytest.mark.parametrize("own", [(OWN,), ()])
async def test_the_controller_is_in_the_live_list_where_it_has_an_endpoint_and_is_never_sent_a_request(
    own: tuple[Endpoint, ...],
) -> None:
    async with world(1, own_endpoints=own) as w:
        await w.load((1, CONTROLLER))
        live = {b.id_: b for b in w.one.of(UPDATE_METADATA)[0].entity.live_brokers}
        assert live.keys() == ({1, CONTROLLER} if own else {1})
        assert {e.listener for e in live[1].endpoints} == {"CLIENT", "INTERNAL"}
        if own:
            listed = [(e.listener, e.host, e.port) for e in live[CONTROLLER].endpoints]
            assert listed == [(OWN.listener, OWN.host, OWN.port)]
        assert w.channels.lag().keys() == {1}


@pytest.mark.parametrize(
    ("racks", "chosen", "own"),
    [({}, "r9", None), ({2: "r2"}, "r9", "r9"), ({1: "r1", 2: "r2", 3: "r2"}, None, "r2")],
)
async def test_the_controller_has_a_rack_where_a_broker_has_one(
    racks: dict[int, str], chosen: str | None, own: str | None
) -> None:
    async with world(1, 2, 3, racks=racks, rack=chosen) as w:
        await settled(w)
        live = w.one.of(UPDATE_METADATA)[-1].entity.live_brokers
        assert {b.id_: b.rack for b in live} == {1: None, 2: None, 3: None} | racks | {CONTROLLER: own}


async def test_changed_endpoints_of_an_incarnation_are_listed_for_all_and_used() -> None:
    async with world(1, 2) as w:
        await settled(w)
        await w.one.stop_listening()
        w.one.port = 0
        await w.one.listen()
        w.register(1)
        await settled(w)
        for broker in w.brokers.values():
            live = broker.of(UPDATE_METADATA)[-1].entity.live_brokers
            ports = {e.port for b in live if b.id_ == 1 for e in b.endpoints if e.listener == "INTERNAL"}
            assert ports == {w.one.port}


# -- leaders and followers


@pytest.mark.seed("S4-22", "S4-23")
async def test_an_election_is_sent_to_its_replicas_and_its_metadata_to_all() -> None:
    async with world(1, 2, 3) as w:
        rows = await w.load((1, 2), (3,))
        w.elect(rows[0], leader=2)
        await settled(w)
        assert [b.apis() for b in w.brokers.values()] in (["Lu", "Lu", "u"], ["uL", "Lu", "u"])
        entry = w.one.of(LEADER_AND_ISR)[-1].states()["t", 0]
        assert (entry.leader, entry.leader_epoch, entry.is_new) == (2, 4, False)


@pytest.mark.parametrize("api", [LEADER_AND_ISR, STOP_REPLICA])
async def test_the_partitions_of_a_request_in_flight_count_until_its_response(api: int) -> None:
    async with world(1) as w:
        rows = await w.load(*[(1,)] * 3)
        w.one.hold()
        if api == LEADER_AND_ISR:
            w.channels.leader_and_isr_to(1, rows)
        else:
            w.channels.propagate((), [stop(row) for row in rows])
        await eventually(lambda: w.one.of(api)[-1:] == w.one.requests[-1:])
        assert w.channels.lag()[1].partitions == 3
        await nothing_for(w, 1)
        w.one.let_go.set()
        await settled(w)
        assert w.channels.lag()[1].partitions == 0


async def test_leaders_have_acknowledged_before_they_have_the_metadata() -> None:
    async with world(1) as w:
        rows = await w.load((1,))

        def hold_after_leadership(api: int, entity: Any) -> dict[str, Any]:
            if api == LEADER_AND_ISR:
                w.one.hold()
            return {}

        w.one.respond = hold_after_leadership
        w.elect(*rows)
        await in_flight(w.one, "Lu")
        assert await w.channels.leaders_acknowledged(rows, 10) == frozenset()
        await nothing_for(w, 1)
        w.one.let_go.set()
        await settled(w)


async def test_leadership_that_is_sent_to_one_broker_is_new_only_where_the_caller_says_so() -> None:
    async with world(1, 2) as w:
        first, second = await w.load((1, 2), (1, 2))
        w.channels.leader_and_isr_to(1, [first])
        w.channels.leader_and_isr_to(1, [second], is_new=True)
        await settled(w)
        assert [b.apis() for b in w.brokers.values()] == ["L", ""]
        assert [s.is_new for s in w.one.of(LEADER_AND_ISR)[-1].states().values()] == [False, True]


async def test_followers_wait_for_the_acknowledgement_of_their_leader_and_other_partitions_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = stopped_clock(monkeypatch)
    async with world(1, 2) as w:
        rows = await w.load((1, 2), (1,), snapshot=False)
        for _ in range(3):
            for broker in w.brokers.values():
                broker.mark()
            clock[0] += 10
            w.brokers[2].hold()
            w.elect(rows[0], leader=2)
            w.elect(rows[1])
            await in_flight(w.brokers[2], "L")
            await in_flight(w.one, "Lu")
            assert w.one.of(LEADER_AND_ISR)[-1].partitions() == [("t", 1)]
            w.brokers[2].let_go.set()
            assert await w.channels.leaders_acknowledged(rows, 10) == frozenset()
            clock[0] += 0.1
            await settled(w)
            assert w.one.apis() == "Lu" + "L"
            assert w.one.of(LEADER_AND_ISR)[-1].partitions() == [("t", 0)]


async def test_a_leader_that_does_not_respond_delays_its_followers_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = stopped_clock(monkeypatch)
    async with world(1, 2) as w:
        rows = await w.load((1, 2), snapshot=False)
        w.brokers[2].hold()
        for _ in range(3):
            w.brokers[2].mark()
            w.one.mark()
            clock[0] += 10
            w.elect(rows[0], leader=2)
            await in_flight(w.one, "u")
            clock[0] += 0.9 * channel.LEADER_FIRST_S_MAX
            await nothing_for(w, 1, 2)
            assert w.one.apis() == "u"
            clock[0] += 0.2 * channel.LEADER_FIRST_S_MAX
            await in_flight(w.one, "uL")
            assert await w.channels.leaders_acknowledged(rows, 0.01) == frozenset(rows)
            w.brokers[2].let_go.set()
            assert await w.channels.leaders_acknowledged(rows, 10) == frozenset()
            clock[0] += 10
            await settled(w)
            w.brokers[2].hold()


# -- stops and responses


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testStopReplicaRequestSent",
    "ControllerChannelManagerTest.testMixedDeleteAndNotDeleteStopReplicaRequests",
    "ControllerChannelManagerTest.testStopReplicaRequestWithAlreadyDefinedDeletedPartition",
)
@pytest.mark.seed("S4-34", "S4-73")
@pytest.mark.parametrize(("ibp", "version"), [("2.7-IV1", 3), ("3.9", 4)])
async def test_stop_replica_has_leader_epochs_and_whether_to_delete(ibp: str, version: int) -> None:
    async with world(1, ibp=Ibp.parse(ibp)) as w:
        rows = w.add_topic("t", [(1, 2), (2, 1)])
        w.channels.propagate((), [stop(rows[0]), stop(rows[1], delete=True), stop(rows[1])])
        await settled(w)
        (request,) = w.one.of(STOP_REPLICA)
        assert request.version == version
        found = [(p, s.leader_epoch, s.delete_partition) for (_, p), s in request.states().items()]
        assert found == [(0, 3, False), (1, 3, True)]
        (response,) = [one for one in w.responses() if one.api is Api.STOP_REPLICA]
        assert response == BrokerResponse(1, 101, Api.STOP_REPLICA, 0, (), {rows[0]: False, rows[1]: True})


def failing(errors: dict[int, int], version: int, topic_id: bytes | None) -> Callable[[int, Any], dict[str, Any]]:
    """Responds to LeaderAndIsr with errors by partition of topic t."""
    kind = "LeaderAndIsrPartitionError"
    entries = tuple(
        part(4, version, kind, response=True, topic_name="t", partition_index=p, error_code=ErrorCode(code))
        for p, code in errors.items()
    )
    fields: dict[str, Any] = {"partition_errors": entries}
    if version >= 5:
        kind = "LeaderAndIsrTopicError"
        grouped = part(4, version, kind, response=True, topic_id=to_uuid(topic_id), partition_errors=entries)
        fields = {"topics": (grouped,)}
    return lambda api, entity: fields if api == LEADER_AND_ISR else {}


@pytest.mark.kafka("ControllerChannelManagerTest.testLeaderAndIsrRequestSent")
@pytest.mark.parametrize(("ibp", "version"), OLD_AND_NEW)
async def test_failed_partitions_of_batches_and_snapshots_are_reported_by_row(ibp: str, version: int) -> None:
    async with world(1, ibp=Ibp.parse(ibp)) as w:
        w.add_topic("other", [(1,)] * 2)
        rows = await w.load(*[(1,)] * 4, snapshot=False)
        topic_id = w.cluster.topics[1].topic_id
        w.one.respond = failing({0: 0, 1: 11, 2: 56, 3: 3}, version, topic_id)
        w.elect(*rows)
        await settled(w)
        (response,) = w.responses()
        assert (response.broker_id, response.broker_epoch, response.error) == (1, 101, 0)
        assert response.failed == ((rows[2], 56), (rows[3], 3))
        assert response.rows == dict.fromkeys(rows, False)
        w.channels.snapshot()
        w.one.respond = failing({2: 56}, version, topic_id)
        await settled(w)
        assert w.responses()[-1].failed == ((rows[2], 56),)
        assert w.responses()[-1].rows == range(6)


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("code", [11, 77])
async def test_a_request_that_is_refused_for_a_stale_epoch_is_reported_and_not_retried(code: int) -> None:
    async with world(1) as w:
        w.one.respond = lambda api, entity: {"error_code": ErrorCode(code)}
        await settled(w)
        assert w.responses() == [BrokerResponse(1, 101, Api.UPDATE_METADATA, code, (), range(0))]
        assert w.one.apis() == "U"
        assert str(code) in str(w.channels.lag()[1].last_error)


async def test_the_age_of_an_acknowledged_change_is_reported_from_the_change_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is deregistered before it acknowledges reports nothing."""
    clock = stopped_clock(monkeypatch)
    async with world(1, 2) as w:
        rows = await w.load((1,))
        w.one.mute = w.brokers[2].mute = True
        w.lags.clear()
        clock[0] += 10
        w.elect(*rows)
        await in_flight(w.one, "L")
        clock[0] += 7
        assert (w.channels.lag()[1].oldest_s, w.lags) == (7, [])
        w.deregister(2)
        w.one.mute = False
        w.one.cut()
        await eventually(lambda: w.channels.lag()[1].last_error)
        clock[0] += 1
        await settled(w)
        assert max(w.lags) == 8
        assert w.channels.lag()[1].oldest_s == 0


def remove(w: ChannelsWorld, rows: list[int]) -> None:
    """Removes the topic, and stops its replicas on broker 1."""
    w.channels.propagate((), [stop(i, delete=True) for i in rows])
    topic_gone(w.cluster, "t")


def recreate(w: ChannelsWorld, partitions: int) -> None:
    """Adds the topic again, and sends its leadership to broker 1."""
    w.channels.leader_and_isr_to(1, w.add_topic("t", [(1,)] * partitions), is_new=True)


def stopped(w: ChannelsWorld) -> list[int]:
    """Returns the partitions of the only StopReplica to broker 1."""
    (request,) = w.one.of(STOP_REPLICA)
    return [partition for _, partition in request.partitions()]


async def test_the_stop_of_a_former_incarnation_goes_before_leadership_of_the_next_one() -> None:
    """A broker that has the log of the former topic refuses the other topic id for good."""
    async with world(1) as w:
        remove(w, await w.load((1,), (1,), snapshot=False))
        recreate(w, 2)
        await settled(w)
        assert (w.one.apis(), stopped(w)) == ("SL", [0, 1])


async def test_the_stop_of_a_former_incarnation_goes_while_the_next_one_has_no_leader() -> None:
    async with world(1) as w:
        remove(w, w.add_topic("t", [(1,)]))
        w.cluster.observe_topic(TopicAssignment("t", b"\2" * 16, {0: Assignment((1,))}, 0, 99))
        await settled(w)
        assert stopped(w) == [0]


async def test_the_stop_of_a_former_incarnation_goes_before_a_turn_with_the_next_one() -> None:
    async with world(1, seal_interval_ms=60_000) as w:
        former = w.add_topic("t", [(1,)])
        w.elect(*former)
        await in_flight(w.one, "ULu")
        remove(w, former)
        recreate(w, 1)
        w.channels.snapshot()
        await in_flight(w.one, "ULu" + "SLLu")
        assert stopped(w) == [0]


async def test_a_late_stop_of_a_former_incarnation_deletes_no_log_of_the_next_one() -> None:
    """StopReplica names no topic id: after the leadership of the new replica it would hit that one."""
    async with world(1) as w:
        former = w.add_topic("t", [(1,), (1,)])
        topic_gone(w.cluster, "t")
        recreate(w, 1)
        await settled(w)
        w.channels.propagate((), [stop(i, delete=True) for i in former])
        await settled(w)
        assert stopped(w) == [1]
