"""LeaderAndIsr, UpdateMetadata and StopReplica of every version, read back field by field with kio."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.outbound.batches import Batcher
from brokers.outbound.snapshot import Pieces, Snapshots, encode_turn
from brokers.wire.partitions import PartitionEncoder, metadata_tail
from brokers.wire.requests import EMPTY_BODY, Requests, live_list
from brokers.wire.versions import Ibp
from state_machines.model.types import Assignment, Broker, PartitionRow, PartitionState, Topic
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import is_sent
from tests.kit.kafka.model import P, make_cluster
from tests.kit.wire import (
    IBPS,
    FakeCluster,
    clusters,
    live_brokers,
    many_partitions,
    many_replicas,
    quickly,
    read_request,
    to_uuid,
    unframe,
)

BROKER_EPOCH = 2**40 + 7


def same_head(entry: Any, row: PartitionRow, partition_epoch: str) -> None:
    assert entry.partition_index == row.partition
    assert entry.controller_epoch == row.controller_epoch
    assert entry.leader == row.leader
    assert entry.leader_epoch == row.leader_epoch
    assert entry.isr == row.isr
    assert getattr(entry, partition_epoch) == row.version
    assert entry.replicas == row.assignment.replicas


def by_partition(entity: Any, cluster: FakeCluster, *, topic_ids: bool) -> dict[int, Any]:
    """Returns entries by row; checks that every topic occurs once, under its right id."""
    found: dict[int, Any] = {}
    rows = {(cluster.topics[row.topic].name, row.partition): i for i, row in enumerate(cluster.rows)}
    topics: dict[str, Topic] = {topic.name: topic for topic in cluster.topics}
    assert len({state.topic_name for state in entity.topic_states}) == len(entity.topic_states)
    for state in entity.topic_states:
        if topic_ids:
            assert state.topic_id == to_uuid(topics[state.topic_name].topic_id)
        for entry in state.partition_states:
            i = rows[state.topic_name, entry.partition_index]
            assert i not in found
            found[i] = entry
    return found


def check_header(header: Any, entity: Any, version: int, *, kraft_since: int) -> None:
    assert header.request_api_version == version
    assert header.correlation_id == 77
    assert header.client_id == "1000001"
    assert entity.controller_id == 1000001
    assert entity.controller_epoch == 9
    assert entity.broker_epoch == BROKER_EPOCH
    assert getattr(entity, "is_k_raft_controller", None) == (False if version >= kraft_since else None)


def check_leader_and_isr(ibp: Ibp, cluster: FakeCluster, body: bytes, news: dict[int, bool]) -> None:
    frame = unframe(Requests(ibp, 1000001, 9).leader_and_isr(77, BROKER_EPOCH, body))
    header, entity = read_request(frame)
    version = ibp.leader_and_isr_version
    check_header(header, entity, version, kraft_since=7)
    assert entity.live_leaders == ()
    assert getattr(entity, "type_", 0) == 0
    entries = by_partition(entity, cluster, topic_ids=version >= 5)
    assert entries.keys() == news.keys()
    for i, entry in entries.items():
        row = cluster.rows[i]
        same_head(entry, row, "partition_epoch")
        assert entry.adding_replicas == row.assignment.adding
        assert entry.removing_replicas == row.assignment.removing
        assert entry.is_new == news[i]
        if version >= 6:
            assert entry.leader_recovery_state == row.recovering


def check_update_metadata(ibp: Ibp, cluster: FakeCluster, body: bytes, rows: set[int], brokers: list[Broker]) -> None:
    frame = unframe(Requests(ibp, 1000001, 9).update_metadata(77, BROKER_EPOCH, body, live_list(brokers)))
    header, entity = read_request(frame)
    version = ibp.update_metadata_version
    check_header(header, entity, version, kraft_since=8)
    entries = by_partition(entity, cluster, topic_ids=version >= 7)
    assert entries.keys() == rows
    for i, entry in entries.items():
        same_head(entry, cluster.rows[i], "zk_version")
        assert entry.offline_replicas == cluster.offline_replicas(i)
    assert [(b.id_, b.rack) for b in entity.live_brokers] == [(b.id, b.rack) for b in brokers]
    for listed, broker in zip(entity.live_brokers, brokers, strict=True):
        read = [(e.listener, e.host, e.port, e.security_protocol) for e in listed.endpoints]
        assert read == [(e.listener, e.host, e.port, e.security_protocol) for e in broker.endpoints]


def sent_rows(cluster: FakeCluster) -> set[int]:
    return {i for i, row in enumerate(cluster.rows) if is_sent(row)}


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testLeaderAndIsrRequestSent",
    "ControllerChannelManagerTest.testUpdateMetadataRequestSent",
)
@pytest.mark.seed("S4-76", "S4-85")
@pytest.mark.parametrize("ibp", IBPS, ids=str)
@quickly
@given(cluster=clusters(), data=st.data())
def test_changed_rows_read_back_field_by_field(ibp: Ibp, cluster: FakeCluster, data: st.DataObject) -> None:
    propagation = Propagation(cluster)
    propagation.metadata_changed(range(len(cluster.rows)))
    batcher = Batcher(propagation, ibp)
    news = {i: data.draw(st.booleans()) for i in range(len(cluster.rows))}
    metadata, position = batcher.update_metadata(0, batcher.cut(0.0, 0.0))
    leaders = batcher.leader_and_isr(news)
    assert position == len(cluster.rows)
    assert (metadata is None) == (leaders is None) == (not sent_rows(cluster))
    if metadata is not None and leaders is not None:
        check_update_metadata(ibp, cluster, metadata, sent_rows(cluster), data.draw(live_brokers))
        check_leader_and_isr(ibp, cluster, leaders, {i: new for i, new in news.items() if i in sent_rows(cluster)})


@pytest.mark.seed("S4-76", "S4-85")
@pytest.mark.parametrize("ibp", IBPS, ids=str)
@quickly
@given(cluster=clusters(), turn_rows=st.integers(1, 8), data=st.data())
def test_a_snapshot_has_each_row_once_and_each_brokers_leaderships(
    ibp: Ibp, cluster: FakeCluster, turn_rows: int, data: st.DataObject
) -> None:
    hosts = sorted({b for row in cluster.rows for b in row.assignment.replicas})
    wanting = data.draw(st.lists(st.sampled_from(hosts), unique=True)) if hosts else []
    pieces, first, seen = Pieces(cluster, PartitionEncoder(ibp), wanting), 0, set()
    while first < len(cluster.rows):
        turn = encode_turn(pieces, first, turn_rows)
        assert first < turn.last <= first + turn_rows
        here = {i for i in range(first, turn.last) if is_sent(cluster.rows[i])}
        assert (turn.metadata is None) == (not here)
        if turn.metadata is not None:
            check_update_metadata(ibp, cluster, turn.metadata, here, [])
        for broker in wanting:
            hosted = {i: False for i in here if broker in cluster.rows[i].assignment.replicas}
            body = turn.take(broker)
            assert (body is None) == (not hosted)
            if body is not None:
                check_leader_and_isr(ibp, cluster, body, hosted)
        seen |= here
        first = turn.last
    assert seen == sent_rows(cluster)


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testStopReplicaRequestSent",
    "ControllerChannelManagerTest.testStopReplicaRequestsWhileTopicQueuedForDeletion",
    "ControllerChannelManagerTest.testMixedDeleteAndNotDeleteStopReplicaRequests",
)
@pytest.mark.seed("S4-76")
@pytest.mark.parametrize("ibp", IBPS, ids=str)
@quickly
@given(cluster=clusters(), data=st.data())
def test_stop_replica_reads_back_with_its_leader_epochs(ibp: Ibp, cluster: FakeCluster, data: st.DataObject) -> None:
    deletes = {i: data.draw(st.booleans()) for i in range(len(cluster.rows))}
    body = Batcher(Propagation(cluster), ibp).stop_replica(deletes)
    header, entity = read_request(unframe(Requests(ibp, 1000001, 9).stop_replica(77, BROKER_EPOCH, body)))
    check_header(header, entity, ibp.stop_replica_version, kraft_since=4)
    entries = by_partition(entity, cluster, topic_ids=False)
    assert entries.keys() == deletes.keys()
    for i, entry in entries.items():
        row = cluster.rows[i]
        epoch = row.leader_epoch if row.has_leadership else -1
        assert entry.leader_epoch == (-2 if row.state is PartitionState.NON_EXISTENT else epoch)
        assert entry.delete_partition == deletes[i]


@pytest.mark.parametrize("ibp", IBPS, ids=str)
@quickly
@given(brokers=live_brokers)
def test_the_live_list_alone_is_an_update_without_topics(ibp: Ibp, brokers: list[Broker]) -> None:
    check_update_metadata(ibp, FakeCluster([], [], {}), EMPTY_BODY, set(), brokers)


@pytest.mark.parametrize("ibp", [IBPS[0], IBPS[-1]], ids=str)
@quickly
@given(cluster=many_partitions | many_replicas)
def test_arrays_whose_length_needs_more_than_a_byte_read_back(ibp: Ibp, cluster: FakeCluster) -> None:
    rows = range(len(cluster.rows))
    turn = encode_turn(Pieces(cluster, PartitionEncoder(ibp), [1]), 0, 1000)
    lead = turn.take(1)
    assert turn.metadata is not None
    assert lead is not None
    check_update_metadata(ibp, cluster, turn.metadata, set(rows), [])
    check_leader_and_isr(ibp, cluster, lead, dict.fromkeys(rows, False))


@pytest.mark.kafka("ControllerChannelManagerTest.testUpdateMetadataRequestDuringTopicDeletion")
@pytest.mark.seed("S4-78")
@pytest.mark.parametrize("ibp", IBPS, ids=str)
def test_removed_partitions_go_in_a_request_before_a_new_incarnation(ibp: Ibp) -> None:
    """They have leader -2 and epochs of zero, as in Kafka; LeaderAndIsr names none of them.

    In the same request brokers would forget the new topic id with the last of them.
    """
    assignment, absent = Assignment((1, 2)), PartitionState.NON_EXISTENT
    gone = [PartitionRow(0, p, assignment, absent, 1, 4, (2, 1), 2, 9) for p in (0, 1)]
    never = PartitionRow(0, 2, assignment, absent)
    again = PartitionRow(1, 0, assignment, PartitionState.ONLINE, 1, 0, (1, 2), 2, 0)
    other = PartitionRow(2, 0, assignment, PartitionState.ONLINE, 2, 5, (2,), 2, 7)
    names = enumerate(("t", "t", "other"))
    topics = [Topic(index, name, bytes(15) + bytes((index + 1,)), (), 0, 1) for index, name in names]
    cluster = FakeCluster(topics, [*gone, never, again, other], {})
    propagation = Propagation(cluster)
    propagation.metadata_changed([1, 0, 2, 4, 3])
    batcher = Batcher(propagation, ibp)
    position, sent = 0, list[Any]()
    while position < propagation.feed.number:
        body, position = batcher.update_metadata(position, batcher.cut(0.0, 0.0))
        assert body is not None
        frame = unframe(Requests(ibp, 1000001, 9).update_metadata(77, BROKER_EPOCH, body, live_list([])))
        _, entity = read_request(frame)
        sent.append(
            {
                state.topic_name: [
                    (e.partition_index, e.leader, e.leader_epoch, e.zk_version, e.isr) for e in state.partition_states
                ]
                for state in entity.topic_states
            }
        )
        if ibp.update_metadata_version >= 7:
            ids = {state.topic_name: state.topic_id for state in entity.topic_states}
            assert ids["t"] == to_uuid(topics[len(sent) - 1].topic_id)
    first = {"t": [(1, -2, 0, 0, (2, 1)), (0, -2, 0, 0, (2, 1))], "other": [(0, 2, 5, 7, (2,))]}
    assert sent == [first, {"t": [(0, 1, 0, 0, (1, 2))]}]
    leads = batcher.leader_and_isr(dict.fromkeys(range(5), False))
    assert leads is not None
    _, entity = read_request(unframe(Requests(ibp, 1000001, 9).leader_and_isr(77, BROKER_EPOCH, leads)))
    assert [[e.partition_index for e in state.partition_states] for state in entity.topic_states] == [[0], [0]]


def test_a_broker_that_shuts_down_during_a_snapshot_is_offline_in_the_later_turns() -> None:
    cluster = make_cluster(P((1, 2), 1), P((1, 2), 1), brokers=(1, 2))
    propagation = Propagation(cluster)
    propagation.add(1)
    propagation.snapshot(1)
    snapshots = Snapshots(propagation, IBPS[-1], turn_rows=1)
    before = snapshots.turn(1, 0).metadata
    cluster.observe_shutting_down(2)
    after = snapshots.turn(1, 1).metadata
    assert before is not None
    assert after is not None
    assert (metadata_tail((2,)) in before, metadata_tail((2,)) in after) == (False, True)
