"""Requests as simulated brokers read them, held against kio field by field; hostile bytes; answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.outbound.snapshot import Pieces, encode_turn
from brokers.wire.partitions import PartitionEncoder
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.requests import Requests, live_list
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker
from testing.simulated.bodies import Bodies
from testing.simulated.replies import bare_response, encode_response
from testing.simulated.requests import VERSIONS, read_head, read_request
from testing.simulated.values import Key, LeaderAndIsr, Request, StopReplica, UpdateMetadata
from tests.core.test_wire_requests import live_brokers
from tests.core.wire_kit import (
    IBPS,
    FakeCluster,
    clusters,
    epochs,
    ids,
    part,
    quickly,
    read_response,
    to_uuid,
    topic_ids,
    unframe,
    write_request,
)
from tests.core.wire_kit import read_request as kio_request

BROKER_EPOCH = 2**40 + 7
ALL = [(api, version) for api, (first, last) in VERSIONS.items() for version in range(first, last + 1)]

sparsely = settings(max_examples=20, deadline=None)
"""For what is tried with every version of every request."""
names = st.sampled_from(["t", "orders", "x" * 126, "y" * 127, "z" * 249])
id_lists = st.lists(ids, max_size=4).map(tuple)
many_ids = st.sampled_from([tuple(range(count)) for count in (126, 127, 128, 200)])
leaders = st.sampled_from([-2, -1]) | ids
entry_fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "partition_index": ids,
        "controller_epoch": epochs,
        "leader": leaders,
        "leader_epoch": st.sampled_from([-2, -1]) | epochs,
        "isr": id_lists | many_ids,
        "replicas": id_lists | many_ids,
        "partition_epoch": epochs,
        "zk_version": epochs,
        "adding_replicas": id_lists,
        "removing_replicas": id_lists,
        "offline_replicas": id_lists,
        "is_new": st.booleans(),
        "leader_recovery_state": st.sampled_from([0, 1]),
        "delete_partition": st.booleans(),
    }
)
topics = st.lists(
    st.tuples(names, topic_ids, st.lists(entry_fields, max_size=3)), max_size=3, unique_by=lambda topic: topic[0]
)
KINDS = {
    Api.LEADER_AND_ISR: ("LeaderAndIsrTopicState", "LeaderAndIsrPartitionState"),
    Api.UPDATE_METADATA: ("UpdateMetadataTopicState", "UpdateMetadataPartitionState"),
    Api.STOP_REPLICA: ("StopReplicaTopicState", "StopReplicaPartitionState"),
}


@st.composite
def frames(draw: st.DrawFn, api: Api, version: int) -> bytes:
    """A request as any controller may send it, written by kio."""
    topic_kind, partition_kind = KINDS[api]
    states = tuple(
        part(
            api,
            version,
            topic_kind,
            topic_name=name,
            topic_id=to_uuid(topic_id),
            partition_states=tuple(part(api, version, partition_kind, **dict(entry)) for entry in entries),
        )
        for name, topic_id, entries in draw(topics)
    )
    fields: dict[str, Any] = {"controller_id": draw(ids), "controller_epoch": draw(epochs), "topic_states": states}
    fields["broker_epoch"] = draw(st.sampled_from([-1, 0, BROKER_EPOCH]))
    if version == VERSIONS[api][1]:
        fields["is_k_raft_controller"] = draw(st.booleans())
    if api is Api.LEADER_AND_ISR:
        live = draw(st.lists(st.tuples(ids, names, ids), max_size=3))
        kind = "LeaderAndIsrLiveLeader"
        fields["live_leaders"] = tuple(
            part(api, version, kind, broker_id=b, host_name=host, port=port) for b, host, port in live
        )
        if version >= 5:
            fields["type_"] = draw(st.integers(0, 2))
    if api is Api.UPDATE_METADATA:
        fields["live_brokers"] = tuple(_live(version, broker) for broker in draw(live_brokers))
        if version >= 8:
            fields["type_"] = draw(st.integers(0, 2))
    return write_request(api, version, draw(ids), draw(st.none() | names), **fields)


def _live(version: int, broker: Broker) -> Any:
    endpoints = tuple(
        part(
            Api.UPDATE_METADATA,
            version,
            "UpdateMetadataEndpoint",
            port=e.port,
            host=e.host,
            listener=e.listener,
            security_protocol=e.security_protocol,
        )
        for e in broker.endpoints
    )
    kind = "UpdateMetadataBroker"
    return part(Api.UPDATE_METADATA, version, kind, id_=broker.id, endpoints=endpoints, rack=broker.rack)


def same(request: Request, frame: bytes) -> None:
    """Every field that kio reads is in the request."""
    header, entity = kio_request(frame)
    head = request.head
    assert (head.api, head.version) == (header.request_api_key, header.request_api_version)
    assert (head.correlation, head.client_id) == (header.correlation_id, header.client_id)
    assert (head.controller_id, head.controller_epoch) == (entity.controller_id, entity.controller_epoch)
    assert head.broker_epoch == entity.broker_epoch
    assert head.kraft == getattr(entity, "is_k_raft_controller", False)
    expected = [(topic, state) for topic in entity.topic_states for state in topic.partition_states]
    assert len(request.entries) == len(expected)
    entry: Any
    for entry, (topic, state) in zip(request.entries, expected, strict=True):
        assert (entry.topic, entry.partition) == (topic.topic_name, state.partition_index)
        assert entry.leader_epoch == state.leader_epoch
    match request:
        case LeaderAndIsr():
            _same_leaders(request, entity, expected)
        case UpdateMetadata():
            _same_metadata(request, entity, expected)
        case StopReplica():
            assert [entry.delete for entry in request.entries] == [s.delete_partition for _, s in expected]


def _head(entry: Any, topic: Any, state: Any, partition_epoch: int) -> None:
    assert to_uuid(entry.topic_id) == getattr(topic, "topic_id", None)
    assert (entry.controller_epoch, entry.leader) == (state.controller_epoch, state.leader)
    assert (entry.isr, entry.replicas) == (state.isr, state.replicas)
    assert entry.partition_epoch == partition_epoch


def _same_leaders(request: LeaderAndIsr, entity: Any, expected: list[Any]) -> None:
    for entry, (topic, state) in zip(request.entries, expected, strict=True):
        _head(entry, topic, state, state.partition_epoch)
        assert (entry.adding, entry.removing) == (state.adding_replicas, state.removing_replicas)
        assert entry.is_new == state.is_new
        assert entry.recovering == bool(getattr(state, "leader_recovery_state", 0))
    assert request.kind == getattr(entity, "type_", 0)
    assert list(request.live_leaders) == [(b.broker_id, b.host_name, b.port) for b in entity.live_leaders]


def _same_metadata(request: UpdateMetadata, entity: Any, expected: list[Any]) -> None:
    for entry, (topic, state) in zip(request.entries, expected, strict=True):
        _head(entry, topic, state, state.zk_version)
        assert entry.offline == state.offline_replicas
    assert request.kind == getattr(entity, "type_", 0)
    named = {topic.topic_name: getattr(topic, "topic_id", None) for topic in entity.topic_states}
    assert {name: to_uuid(topic_id) for name, topic_id in request.topics.items()} == named
    assert [(b.id, b.rack, b.epoch) for b in request.live] == [(b.id_, b.rack, -1) for b in entity.live_brokers]
    for mine, theirs in zip(request.live, entity.live_brokers, strict=True):
        read = [(e.port, e.host, e.listener, e.security_protocol) for e in theirs.endpoints]
        assert [(e.port, e.host, e.listener, e.security_protocol) for e in mine.endpoints] == read


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_requests_of_any_controller_are_read_as_kio_reads_them(api: Api, version: int, data: st.DataObject) -> None:
    frame = data.draw(frames(api, version))
    same(read_request(frame), frame)


@pytest.mark.parametrize("ibp", IBPS, ids=str)
@quickly
@given(cluster=clusters(), brokers=live_brokers)
def test_requests_of_this_controller_are_read_as_kio_reads_them(
    ibp: Ibp, cluster: FakeCluster, brokers: list[Broker]
) -> None:
    hosts = sorted({broker for row in cluster.rows for broker in row.assignment.replicas})
    turn = encode_turn(Pieces(cluster, PartitionEncoder(ibp), hosts), 0, 100)
    requests, leads = Requests(ibp, 1_000_001, 9), [turn.take(broker) for broker in hosts]
    found = [requests.leader_and_isr(8, BROKER_EPOCH, lead) for lead in leads if lead is not None]
    if turn.metadata is not None:
        found.append(requests.update_metadata(7, BROKER_EPOCH, turn.metadata, live_list(brokers)))
    for frame in map(unframe, found):
        same(read_request(frame), frame)


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_cut_or_garbled_requests_are_malformed_and_nothing_worse(api: Api, version: int, data: st.DataObject) -> None:
    frame = data.draw(frames(api, version))
    with pytest.raises(Malformed):
        read_request(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(Malformed):
        read_request(frame + b"\0")
    at = data.draw(st.integers(0, len(frame) - 1))
    garbled = frame[:at] + data.draw(st.binary(min_size=1, max_size=6)) + frame[at + 1 :]
    try:
        read_request(garbled)
    except Malformed:
        pass


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_length_that_the_bytes_cannot_hold_reserves_nothing(api: Api, version: int) -> None:
    reader = Reader(_empty(api, version))
    read_head(reader)
    start = reader.data[: reader.position + (api is Api.LEADER_AND_ISR and version >= 5)]
    for length in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x0f", b"\0"):
        with pytest.raises(Malformed):
            read_request(start + length + bytes(100))


def _empty(api: Api, version: int) -> bytes:
    fields: dict[str, Any] = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1, "topic_states": ()}
    if version == VERSIONS[api][1]:
        fields["is_k_raft_controller"] = False
    if api is Api.LEADER_AND_ISR:
        fields |= {"live_leaders": ()} | ({"type_": 0} if version >= 5 else {})
    if api is Api.UPDATE_METADATA:
        fields |= {"live_brokers": ()} | ({"type_": 0} if version >= 8 else {})
    return write_request(api, version, 1, **fields)


@pytest.mark.parametrize(
    ("api", "version"), [(4, 3), (4, 8), (6, 5), (6, 9), (5, 2), (5, 5), (3, 12), (18, 3), (999, 0)]
)
def test_other_requests_are_refused_by_name(api: int, version: int) -> None:
    with pytest.raises(Malformed, match=f"API key {api} v{version} is not one of LEADER_AND_ISR v4 to v7"):
        read_request(api.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(40))


# -- answers


def listed(api: Api, version: int, answer: bytes) -> tuple[int, int, list[tuple[Any, int, int]]]:
    """Correlation, top-level error, and (topic name or id, partition, error) as kio reads them."""
    correlation, entity = read_response(api, version, answer)
    if api is Api.UPDATE_METADATA:
        return correlation, entity.error_code, []
    if api is Api.LEADER_AND_ISR and version >= 5:
        found = [(t.topic_id, p.partition_index, p.error_code) for t in entity.topics for p in t.partition_errors]
    else:
        found = [(p.topic_name, p.partition_index, p.error_code) for p in entity.partition_errors]
    return correlation, entity.error_code, found


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_answers_name_every_partition_with_its_error(api: Api, version: int, data: st.DataObject) -> None:
    request = read_request(data.draw(frames(api, version)))
    code, top = data.draw(st.sampled_from([0, 3, 11, 56, 103])), data.draw(st.sampled_from([0, 11, 77, -1]))
    errors: dict[Key, int] = {(entry.topic, entry.partition): code for entry in request.entries}
    topic_id = {entry.topic: getattr(entry, "topic_id", None) for entry in request.entries}
    by_id = api is Api.LEADER_AND_ISR and version >= 5
    correlation, error, found = listed(api, version, encode_response(request, top, errors))
    assert (correlation, error) == (request.head.correlation, top)
    if api is Api.UPDATE_METADATA:
        assert found == []
    else:
        named = [(to_uuid(topic_id[t]) if by_id else t, p, code) for t, p in errors]
        assert sorted(found, key=str) == sorted(named, key=str)
    assert listed(api, version, bare_response(request.head, top)) == (correlation, top, [])


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_a_kept_body_answers_for_every_partition_and_reads_the_same_again(
    api: Api, version: int, data: st.DataObject
) -> None:
    frame = data.draw(frames(api, version))
    request, reader = read_request(frame), Reader(frame)
    head = read_head(reader)
    bodies = Bodies()
    body = bodies.intern(head, frame[reader.position :])
    assert bodies.intern(head, bytearray(frame[reader.position :])) is body
    assert bodies.kept_bytes == len(frame) - reader.position
    assert body.request(head) == request
    assert body.request(head, keep=True) == body.request(head) == request
    body.release()
    if api is not Api.UPDATE_METADATA:
        _, _, found = listed(api, version, head.correlation.to_bytes(4, "big") + body.response(11))
        assert {(partition, error) for _, partition, error in found} == {(e.partition, 11) for e in request.entries}
        assert len(found) >= len({(entry.topic, entry.partition) for entry in request.entries})


def test_bodies_that_differ_in_one_byte_are_kept_apart() -> None:
    head = read_head(Reader(_empty(Api.UPDATE_METADATA, 8)))
    bodies, data = Bodies(), bytes(1000)
    kept = [bodies.intern(head, data[:at] + b"\1" + data[at + 1 :]) for at in (0, 100, 500, 700, 999)]
    assert len(set(map(id, kept))) == 5
    assert [bodies.intern(head, body.data) is body for body in kept] == [True] * 5
    bodies.clear()
    assert bodies.kept_bytes == 0
