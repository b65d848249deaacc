"""Leaders of simulated brokers: the contract that a real broker keeps to, and the ISR that they want beyond it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokers.wire.calls import AlterPartitionCall, ControlledShutdownCall, IsrProposal, read_call, read_header
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.replies import (
    AlterPartitionReply,
    ControlledShutdownReply,
    PartitionReply,
    encode_reply,
)
from metadata_store.codecs.notifications import Partitions, decode_partitions
from metadata_store.codecs.topic import decode_state
from state_machines.model.types import Leadership, TopicPartition
from testing.simulated.broker import SimulatedBroker
from testing.simulated.calls import ShutdownResponse, controlled_shutdown, shutdown_response
from testing.simulated.isr import IsrWrite
from tests.contracts.broker_isr import IsrContract, Judge, granted, reply
from tests.contracts.broker_support import NEW, Director, Known
from tests.contracts.brokers import BrokerContract
from tests.kit.kafka.brokers import ID, KEY, broker_with, lead

ROUNDS_MAX = 50


class Simulated:
    """Implements the subject of the contract."""

    def __init__(self) -> None:
        self.broker = SimulatedBroker(1, 10)

    @property
    def epoch(self) -> int:
        return self.broker.epoch

    async def exchange(self, frame: bytes) -> bytes:
        return self.broker.receive(frame)

    async def restart(self) -> None:
        self.broker.restart(self.broker.epoch + 5)

    async def metadata(self, topic: str) -> tuple[bytes | None, dict[int, Known]]:
        found = {
            partition: Known(entry.leader, entry.leader_epoch, entry.isr, entry.replicas)
            for (name, partition), entry in self.broker.metadata.items()
            if name == topic
        }
        return self.broker.cache.topic_ids.get(topic), found

    async def live(self) -> tuple[int, frozenset[int]]:
        return self.broker.controller_id, frozenset(self.broker.live)

    async def fail_log(self, topic: str, partition: int) -> None:
        self.broker.fail_partition(topic, partition)

    async def repair_logs(self) -> None:
        self.broker.recover()
        await self.restart()


class SimulatedLeaders(Simulated):
    """Implements the subject with leaders, and its controller."""

    def __init__(self) -> None:
        super().__init__()
        self.judge: Judge = granted
        self.not_controller = 0
        self.calls: list[AlterPartitionCall] = []

    async def until(self, check: Callable[[], bool]) -> None:
        for correlation in range(ROUNDS_MAX):
            if check():
                return
            self.broker.isr.wish(lambda key: ())
            self._request(correlation)
        raise AssertionError("the leaders send no further request")

    def _request(self, correlation: int) -> None:
        self.broker.isr.alter_partition(correlation)
        request = self.broker.isr.in_flight
        if request is not None:
            reader = Reader(request.frame)
            call = read_call(read_header(reader), reader)
            assert isinstance(call, AlterPartitionCall)
            self.broker.isr.take_response(encode_reply(call, request.correlation, reply(self, call))[4:])


@pytest.fixture
def leaders() -> SimulatedLeaders:
    return SimulatedLeaders()


@pytest.fixture
def director(leaders: SimulatedLeaders) -> Director:
    return Director(leaders, "orders", 5, NEW)


class TestSimulatedBroker(BrokerContract):
    """Checks the contract of requests in memory."""


class TestSimulatedLeader(IsrContract):
    """Checks the contract of leaders in memory."""


OTHER = ("orders", 1)


def call_of(frame: bytes | None) -> AlterPartitionCall:
    """Reads a request as the product's listener does."""
    assert frame is not None
    reader = Reader(frame)
    call = read_call(read_header(reader), reader)
    assert isinstance(call, AlterPartitionCall)
    return call


def respond(broker: SimulatedBroker, *partitions: PartitionReply, top: int = 0) -> bool:
    """Responds to the request in flight as the product's listener does."""
    request = broker.isr.in_flight
    assert request is not None
    call = call_of(request.frame)
    return broker.isr.take_response(encode_reply(call, request.correlation, AlterPartitionReply(top, partitions))[4:])


def with_request(broker: SimulatedBroker, *in_sync: int) -> SimulatedBroker:
    """Lets the broker send the ISR that follows from the replicas in sync."""
    broker.isr.wish(lambda key: in_sync)
    assert broker.isr.alter_partition(7) is not None
    return broker


def test_members_that_fell_behind_leave_together_and_caught_up_replicas_join_one_by_one() -> None:
    broker = broker_with(lead(isr=(1, 2, 3)), lead(1, isr=(1,)))
    assert broker.isr.wish(lambda key: (1, 3) if key == KEY else (2, 3)) == [KEY, OTHER]
    call = call_of(broker.isr.alter_partition(7))
    assert (call.version, call.broker_id, call.broker_epoch) == (3, 1, 10)
    assert call.proposals == (
        IsrProposal(ID, 0, 4, (1, 3), 6, recovering=False),
        IsrProposal(ID, 1, 4, (1, 2), 6, recovering=False),
    )
    assert broker.isr.alter_partition(8) is None, "one request in flight"
    granted = [PartitionReply(ID, 0, 0, 1, 4, (1, 3), 7), PartitionReply(ID, 1, 0, 1, 4, (1, 2), 9)]
    assert respond(broker, *granted)
    assert (broker.replicas[KEY].isr, broker.replicas[KEY].partition_epoch) == ((1, 3), 7)
    assert (broker.replicas[OTHER].isr, broker.replicas[OTHER].partition_epoch) == ((1, 2), 9)
    assert broker.isr.wish(lambda key: (1, 3) if key == KEY else (2, 3)) == [OTHER]
    assert call_of(broker.isr.alter_partition(8)).proposals == (IsrProposal(ID, 1, 4, (1, 2, 3), 9, recovering=False),)


def test_a_leader_stays_in_the_isr_a_follower_requests_no_change_and_only_live_brokers_join() -> None:
    broker = broker_with(lead(isr=(1, 2)), live=(1, 2))
    assert broker.isr.wish(lambda key: ()) == [KEY]
    assert call_of(broker.isr.alter_partition(7)).proposals[0].isr == (1,)
    assert broker_with(lead(isr=(1,)), live=(1, 2)).isr.wish(lambda key: (2, 3)) == [KEY]
    assert broker_with(lead(isr=(1,)), live=(1, 2)).isr.wish(lambda key: (3,)) == []
    assert broker_with(lead(leader=2, isr=(2, 1))).isr.wish(lambda key: ()) == []


def test_not_controller_for_a_partition_leaves_the_request_in_flight_for_the_next_controller() -> None:
    broker = with_request(broker_with(lead(isr=(1,))), 2)
    assert not respond(broker, PartitionReply(ID, 0, 41))
    assert broker.isr.alter_partition(8) is None
    assert respond(broker, PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7))
    assert broker.replicas[KEY].isr == (1, 2)


def test_a_change_that_is_given_up_is_not_sent_again() -> None:
    broker = with_request(broker_with(lead(isr=(1,))), 2)
    request = broker.isr.in_flight
    broker.isr.give_up(lambda change: True)
    assert broker.isr.in_flight is request
    broker.isr.give_up(lambda change: change.key != KEY)
    assert (broker.isr.waiting, broker.isr.alter_partition(8)) == (0, None)
    assert broker.isr.wish(lambda key: (2,)) == []


def test_a_refused_request_is_made_again_and_a_response_to_another_changes_nothing() -> None:
    broker = with_request(broker_with(lead(isr=(1,))), 2)
    assert respond(broker, top=77)
    assert broker.isr.in_flight is None
    call = call_of(broker.isr.alter_partition(9))
    assert call.proposals[0].isr == (1, 2)
    late = encode_reply(call, 7, AlterPartitionReply(0, [PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7)]))[4:]
    assert broker.isr.take_response(late)
    assert broker.replicas[KEY].isr == (1,)
    assert broker.isr.in_flight is not None


def test_a_response_counts_only_for_the_leadership_of_its_request() -> None:
    broker = with_request(broker_with(lead(isr=(1,))), 2)
    broker_with(lead(epoch=5, isr=(1, 3)), broker=broker)
    assert respond(broker, PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7))
    assert (broker.replicas[KEY].leader_epoch, broker.replicas[KEY].isr) == (5, (1, 3))
    assert broker.isr.wish(lambda key: (2, 3)) == [KEY]


def test_a_partition_that_the_response_leaves_out_is_sent_again() -> None:
    broker = with_request(broker_with(lead(isr=(1,)), lead(1, isr=(1,))), 2)
    assert respond(broker, PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7))
    assert [p.partition for p in call_of(broker.isr.alter_partition(8)).proposals] == [1]


def test_waiting_changes_are_sent_together_and_are_lost_with_the_incarnation() -> None:
    broker = with_request(broker_with(lead(isr=(1,)), lead(1, isr=(1, 2))), 1, 2)
    assert broker.isr.wish(lambda key: (1,)) == [OTHER]
    assert respond(broker, PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7))
    assert broker.isr.wish(lambda key: (1,)) == [KEY]
    assert [p.partition for p in call_of(broker.isr.alter_partition(8)).proposals] == [1, 0]
    broker.restart(11)
    assert broker.isr.in_flight is None
    assert broker.isr.waiting == 0


@pytest.mark.parametrize(("ibp", "offered", "version"), [("2.7", 3, 1), ("2.8", 3, 3), ("3.9", 2, 2), ("3.9", 1, 1)])
def test_topics_are_named_by_id_where_ids_are_known(ibp: str, offered: int, version: int) -> None:
    broker = broker_with(lead(isr=(1,)), ibp=ibp)
    broker.isr.wish(lambda key: (2,))
    call = call_of(broker.isr.alter_partition(7, offered))
    assert (call.version, call.proposals[0].topic) == (version, ID if version >= 2 else "orders")
    nameless = broker_with(lead(isr=(1,), topic_id=None), ibp=ibp)
    nameless.isr.wish(lambda key: (2,))
    assert call_of(nameless.isr.alter_partition(7)).version == 1


def test_a_replica_fetches_from_the_leader_and_epoch_that_it_was_sent() -> None:
    follower = broker_with(lead(leader=2, isr=(2,)))
    assert follower.fetches(KEY, 2, 4)
    assert not follower.fetches(KEY, 2, 5), "it does not know the newer leader epoch"
    assert not follower.fetches(KEY, 3, 4)
    assert not follower.fetches(OTHER, 2, 4)
    assert not broker_with(lead()).fetches(KEY, 1, 4), "a leader does not follow itself"


# -- below IBP 2.7-IV2


def written(write: IsrWrite, version: int) -> Leadership:
    state = decode_state(write.op.data, version)
    assert isinstance(state, Leadership)
    return state


def test_old_leaders_write_the_state_znode_and_a_notification() -> None:
    broker = broker_with(lead(isr=(1, 2, 3), controller_epoch=3), ibp="2.7-IV1")
    broker.isr.wish(lambda key: (1, 2))
    [write] = broker.isr.writes()
    assert broker.isr.writes() == []
    assert (write.op.path, write.op.version) == ("/brokers/topics/orders/partitions/0/state", 6)
    assert written(write, 7) == Leadership(1, 4, (1, 2), 3, 7), "the epoch of the controller that made it leader"
    assert broker.isr.notification() is None
    broker.isr.written(write, written(write, 7))
    assert (broker.replicas[KEY].isr, broker.replicas[KEY].partition_epoch) == ((1, 2), 7)
    notification = broker.isr.notification()
    assert notification is not None
    assert (notification.path, notification.sequential) == ("/isr_change_notification/isr_change_", True)
    assert decode_partitions("", notification.data) == Partitions([TopicPartition(*KEY)])
    assert broker.isr.notification() is None


@pytest.mark.parametrize("found", [None, Leadership(2, 5, (2,), 4, 8), Leadership(1, 4, (1, 3), 3, 8)])
def test_a_write_that_lost_to_another_waits_for_the_next_leader_epoch(found: Leadership | None) -> None:
    broker = broker_with(lead(isr=(1, 2, 3), controller_epoch=3), ibp="2.7-IV1")
    broker.isr.wish(lambda key: (1, 2))
    [write] = broker.isr.writes()
    broker.isr.written(write, found)
    assert broker.replicas[KEY].isr == (1, 2, 3)
    assert broker.isr.notification() is None
    assert broker.isr.wish(lambda key: ()) == []
    broker_with(lead(epoch=5, isr=(1, 2, 3)), broker=broker)
    assert broker.isr.wish(lambda key: ()) == [KEY]


def test_a_write_counts_only_for_the_leadership_that_it_was_made_in() -> None:
    broker = broker_with(lead(isr=(1, 2, 3)), ibp="2.7-IV1")
    broker.isr.wish(lambda key: (1, 2))
    [write] = broker.isr.writes()
    broker_with(lead(leader=2, epoch=5, isr=(2, 3)), broker=broker)
    broker.isr.written(write, written(write, 7))
    assert broker.replicas[KEY].isr == (2, 3)


# -- frames


def test_controlled_shutdown_as_the_listener_reads_it_and_responds() -> None:
    reader = Reader(controlled_shutdown(9, 2, 57))
    header = read_header(reader)
    call = read_call(header, reader)
    assert call == ControlledShutdownCall(3, 2, 57)
    remaining = (("orders", 3), ("orders", 4))
    frame = encode_reply(call, header.correlation, ControlledShutdownReply(0, remaining))[4:]
    assert shutdown_response(frame) == ShutdownResponse(0, remaining)
    for size in range(len(frame)):
        with pytest.raises(BadMessage):
            shutdown_response(frame[:size])


def test_a_cut_response_is_malformed_and_changes_nothing() -> None:
    broker = with_request(broker_with(lead(isr=(1,))), 2)
    request = broker.isr.in_flight
    assert request is not None
    reply = AlterPartitionReply(0, [PartitionReply(ID, 0, 0, 1, 4, (1, 2), 7)])
    frame = encode_reply(call_of(request.frame), 7, reply)[4:]
    for size in range(4, len(frame)):
        with pytest.raises(BadMessage):
            broker.isr.take_response(frame[:size])
    assert broker.isr.in_flight is request
    assert broker.isr.take_response(frame)
