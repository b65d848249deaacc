"""A simulated broker as an object: its memory, its view, and requests as it reads them, compared with kio."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.outbound.snapshot import Pieces, encode_turn
from brokers.wire.kio_messages import decode_response
from brokers.wire.partitions import PartitionEncoder
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.requests import Requests
from brokers.wire.versions import Api, Ibp
from metadata_store.codecs.notifications import decode_log_dir_event
from testing.simulated.bodies import Bodies
from testing.simulated.broker import Received, SimulatedBroker
from testing.simulated.digest import Truth, differences, digest, expected_view, metadata_lines, replica_lines, view
from testing.simulated.replies import bare_response, encode_response
from testing.simulated.requests import VERSIONS, read_head, read_request
from testing.simulated.values import Key, LeaderAndIsr, Request, UpdateMetadata
from tests.kit.kafka.brokers import CONTROLLER, ID, KEY, broker_with, known, lead, leaders, metadata, stop
from tests.kit.wire import (
    entities,
    one_topic,
    read_response,
    request_header,
    schema_of,
    to_uuid,
    unframe,
    write_request,
    written,
)
from tests.kit.wire import read_request as kio_request

TRUTH = {KEY: Truth(1, 4, (1, 2, 3), 6, (1, 2, 3))}
LIVE = (1, 2, 3)


def test_every_request_is_recorded_after_its_effect_also_a_refused_one() -> None:
    recorded: list[tuple[Api, int, int, dict[tuple[str, int], int], int]] = []
    broker = SimulatedBroker(1, 10)

    def record(found: Received) -> None:
        recorded.append((found.api, found.partitions, found.error, found.errors, len(broker.replicas)))

    broker.recorded = record
    broker.take(metadata())
    broker.take(leaders(lead(), lead(1)))
    broker.take(leaders(lead(2), controller_epoch=4))
    broker.take(stop(7))
    assert recorded == [
        (Api.UPDATE_METADATA, 0, 0, {}, 0),
        (Api.LEADER_AND_ISR, 2, 0, {KEY: 0, ("orders", 1): 0}, 2),
        (Api.LEADER_AND_ISR, 1, 11, {("orders", 2): 11}, 2),
        (Api.STOP_REPLICA, 1, 0, {("orders", 7): 0}, 2),
    ]


def test_a_restarted_broker_keeps_its_logs_alone() -> None:
    broker = broker_with(lead(), lead(1, topic_id=None))
    assert broker.controller("INTERNAL") is not None
    broker.restart(11)
    assert (broker.replicas, broker.metadata, broker.live, broker.controller_id) == ({}, {}, {}, -1)
    assert (broker.epoch, broker.controller_epoch) == (11, 0)
    assert broker.controller("INTERNAL") is None
    assert broker.hosting.logs == {KEY: ID, ("orders", 1): None}


def test_a_copy_changes_apart() -> None:
    broker = broker_with(lead())
    other = broker.copy()
    assert view(other) == view(broker)
    other.apply(leaders(lead(epoch=5), lead(1)))
    other.apply(metadata(known(lead(epoch=5)), live=(1,)))
    assert broker.replicas.keys() == {KEY}
    assert broker.replicas[KEY].leader_epoch == broker.metadata[KEY].leader_epoch == 4
    assert broker.live.keys() == {*LIVE, CONTROLLER}
    other.isr.wish(lambda key: ())
    assert broker.isr.waiting == 0


def test_a_failed_directory_is_reported_by_a_znode() -> None:
    event = broker_with(lead()).fail_partition(*KEY)
    assert (event.path, event.sequential) == ("/log_dir_event_notification/log_dir_event_", True)
    assert decode_log_dir_event("", event.data) == 1


def test_api_versions_has_a_response_and_other_requests_are_malformed() -> None:
    software = {"client_software_name": "x", "client_software_version": "1"}
    response = decode_response(Api.API_VERSIONS, 3, SimulatedBroker(1).receive(write_request(18, 3, 9, **software)), 9)
    offered = {(api.api_key, api.min_version, api.max_version) for api in response.api_keys}
    assert offered == {(4, 4, 7), (5, 3, 4), (6, 6, 8)}
    for frame in (
        b"",
        b"\0",
        b"\0\x12",
        bytes(30),
        write_request(60, 0, 9, include_cluster_authorized_operations=False),
    ):
        with pytest.raises(BadMessage):
            SimulatedBroker(1).receive(frame)


# -- views


def test_a_broker_that_was_sent_everything_has_the_expected_view() -> None:
    for broker_id in (1, 2, 4):
        entries = [lead()] if broker_id != 4 else []
        broker = broker_with(*entries, broker_id=broker_id)
        broker.apply(metadata(known(lead())))
        expected = expected_view(broker_id, LIVE, TRUTH)
        assert differences(view(broker), expected) == []
        assert view(broker).digest() == expected.digest()


def test_each_kind_of_difference_is_named_and_changes_the_digest() -> None:
    expected = expected_view(1, LIVE, TRUTH)
    cases = {
        "live (1, 2) instead of (1, 2, 3)": broker_with(lead(), live=(1, 2)),
        "led of orders-0: (4, (1, 2), 6, (1, 2, 3)) instead of (4, (1, 2, 3), 6, (1, 2, 3))": broker_with(
            lead(isr=(1, 2))
        ),
        "followed of orders-0: (2, 4, (1, 2, 3)) instead of None": broker_with(lead(leader=2)),
    }
    for sentence, broker in cases.items():
        assert sentence in differences(view(broker), expected)
        assert view(broker).digest() != expected.digest()
    unsent = SimulatedBroker(1)
    unsent.apply(metadata())
    assert differences(view(unsent), expected, limit=1) == [
        "metadata of orders-0: None instead of (1, 4, (1, 2, 3), 6, (1, 2, 3), ())"
    ]


def test_the_order_of_requests_and_the_controller_do_not_count() -> None:
    one, other = broker_with(lead(), lead(1)), broker_with(lead(1), lead())
    other.apply(metadata(live=(3, 2, 1), controller_epoch=6))
    assert view(one) == view(other)
    assert view(one).digest() == view(other).digest()


def test_a_replica_without_leader_or_stopped_is_not_compared() -> None:
    """Its state depends on earlier requests, which merged ones may leave out."""
    merged, unmerged = broker_with(lead(leader=2)), broker_with(lead(leader=3, epoch=3))
    unmerged.apply(leaders(lead(leader=2)))
    gone = lead(leader=-1, epoch=5)
    for broker in (merged, unmerged):
        broker.apply(leaders(gone))
        broker.apply(metadata(known(gone)))
    only_old = broker_with(lead(leader=3, epoch=3))
    only_old.apply(metadata(known(gone)))
    assert view(merged) == view(unmerged) == view(only_old)
    stopped = broker_with(lead(leader=2))
    stopped.apply(stop())
    assert view(stopped).followed == {}


def test_replicas_of_absent_and_leaving_brokers_are_offline_in_the_metadata() -> None:
    view_ = expected_view(1, (1, 2), TRUTH, leaving=(2,))
    assert view_.metadata[KEY][-1] == (2, 3)
    assert view_.live == (1, 2)


def test_views_have_lines_for_people_and_a_digest() -> None:
    broker = broker_with(lead(), lead(1, leader=2))
    broker.apply(metadata(known(lead(), offline=(3, 2))))
    broker.apply(stop(1))
    assert list(metadata_lines(broker.cache)) == ["orders|0|1|4|1,2,3|6|1,2,3|2,3", "orders|1|2|4|1,2,3|6|1,2,3|"]
    lines = list(replica_lines(broker.replicas.items()))
    assert lines == ["orders|0|1|4|1,2,3|6|1,2,3", "orders|1|2|4|1,2,3|6|1,2,3|stopped"]
    hashes = [int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "little") for line in lines]
    assert digest(lines) == digest(reversed(lines)) == (2, f"{sum(hashes) % 2**64:016x}")
    assert digest([]) == (0, "0" * 16)


ALL = [(api, version) for api, (first, last) in VERSIONS.items() for version in range(first, last + 1)]

sparsely = settings(max_examples=20)
"""For tests of every version of every request."""


def frames(api: Api, version: int) -> st.SearchStrategy[bytes]:
    """Returns requests as any controller may send them, written by kio; no request names a topic twice."""
    bodies = entities(schema_of((api, version, False))).filter(_names_topics_once)
    header = request_header(api, version, 77, "a controller")
    return bodies.map(lambda entity: header + written(entity))


def _names_topics_once(entity: Any) -> bool:
    return len({topic.topic_name for topic in entity.topic_states}) == len(entity.topic_states)


def assert_read_alike(request: Request, frame: bytes) -> None:
    """Checks that every field that kio reads is in the request."""
    header, entity = kio_request(frame)
    head = request.head
    assert (head.api, head.version) == (header.request_api_key, header.request_api_version)
    assert (head.correlation, head.client_id) == (header.correlation_id, header.client_id)
    assert (head.controller_id, head.controller_epoch) == (entity.controller_id, entity.controller_epoch)
    assert (head.broker_epoch, head.kraft) == (entity.broker_epoch, getattr(entity, "is_k_raft_controller", False))
    expected = [(topic, state) for topic in entity.topic_states for state in topic.partition_states]
    entry: Any
    for entry, (topic, state) in zip(request.entries, expected, strict=True):
        assert (entry.topic, entry.partition) == (topic.topic_name, state.partition_index)
        assert entry.leader_epoch == state.leader_epoch
        if not isinstance(request, LeaderAndIsr | UpdateMetadata):
            assert entry.delete == state.delete_partition
            continue
        assert to_uuid(entry.topic_id) == getattr(topic, "topic_id", None)
        assert (entry.controller_epoch, entry.leader) == (state.controller_epoch, state.leader)
        assert (entry.isr, entry.replicas) == (state.isr, state.replicas)
        if isinstance(request, UpdateMetadata):
            assert (entry.partition_epoch, entry.offline) == (state.zk_version, state.offline_replicas)
        else:
            assert entry.partition_epoch == state.partition_epoch
            assert (entry.adding, entry.removing) == (state.adding_replicas, state.removing_replicas)
            recovery = bool(getattr(state, "leader_recovery_state", 0))
            assert (entry.is_new, entry.recovering) == (state.is_new, recovery)
    if isinstance(request, LeaderAndIsr | UpdateMetadata):
        assert request.kind == getattr(entity, "type_", 0)
    if isinstance(request, LeaderAndIsr):
        assert list(request.live_leaders) == [(b.broker_id, b.host_name, b.port) for b in entity.live_leaders]
    if isinstance(request, UpdateMetadata):
        named = {topic.topic_name: getattr(topic, "topic_id", None) for topic in entity.topic_states}
        assert {name: to_uuid(topic_id) for name, topic_id in request.topics.items()} == named
        assert [_plain(b.id, b.rack, b.endpoints) for b in request.live] == [
            _plain(b.id_, b.rack, b.endpoints) for b in entity.live_brokers
        ]


def _plain(broker: int, rack: str | None, endpoints: Any) -> Any:
    return broker, rack, [(e.port, e.host, e.listener, e.security_protocol) for e in endpoints]


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_requests_of_any_controller_are_read_as_kio_reads_them(api: Api, version: int, data: st.DataObject) -> None:
    frame = data.draw(frames(api, version))
    assert_read_alike(read_request(frame), frame)


@pytest.mark.parametrize("size", [126, 127, 128, 200])
def test_arrays_whose_length_needs_more_than_a_byte_are_read_as_kio_reads_them(size: int) -> None:
    turn = encode_turn(
        Pieces(one_topic("t" * size, None, size, size), PartitionEncoder(Ibp.parse("3.9")), [2]), 0, size
    )
    body = turn.take(2)
    assert body is not None
    frame = unframe(Requests(Ibp.parse("3.9"), 1_000_001, 9).leader_and_isr(8, 2**40, body))
    assert_read_alike(read_request(frame), frame)


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_cut_or_garbled_requests_are_malformed_or_read_without_another_error(
    api: Api, version: int, data: st.DataObject
) -> None:
    frame = data.draw(frames(api, version))
    with pytest.raises(BadMessage):
        read_request(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(BadMessage):
        read_request(frame + b"\0")
    at = data.draw(st.integers(0, len(frame) - 1))
    garbage = data.draw(st.binary(min_size=1, max_size=6) | st.just(b"\xff\xff\xff\xff\x0f"))
    try:
        read_request(frame[:at] + garbage + frame[at + 1 :])
    except BadMessage:
        pass


@pytest.mark.parametrize(
    ("api", "version"), [(4, 3), (4, 8), (6, 5), (6, 9), (5, 2), (5, 5), (3, 12), (18, 3), (999, 0)]
)
def test_other_requests_are_refused_by_name(api: int, version: int) -> None:
    with pytest.raises(BadMessage, match=f"API key {api} v{version} is not one of LEADER_AND_ISR v4 to v7"):
        read_request(api.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(40))


# -- responses


def listed(api: Api, version: int, response: bytes) -> tuple[int, int, list[tuple[Any, int, int]]]:
    """Returns correlation, top-level error, and (topic name or id, partition, error) as kio reads them."""
    correlation, entity = read_response(api, version, response)
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
def test_responses_name_every_partition_with_its_error(api: Api, version: int, data: st.DataObject) -> None:
    request = read_request(data.draw(frames(api, version)))
    code, top = data.draw(st.sampled_from([0, 3, 11, 56, 103])), data.draw(st.sampled_from([0, 11, 77, -1]))
    errors: dict[Key, int] = {(entry.topic, entry.partition): code for entry in request.entries}
    topic_id = {entry.topic: getattr(entry, "topic_id", None) for entry in request.entries}
    by_id = api is Api.LEADER_AND_ISR and version >= 5
    correlation, error, found = listed(api, version, encode_response(request, top, errors))
    assert (correlation, error) == (request.head.correlation, top)
    named = [(to_uuid(topic_id[t]) if by_id else t, p, code) for t, p in errors]
    assert sorted(found, key=str) == ([] if api is Api.UPDATE_METADATA else sorted(named, key=str))
    assert listed(api, version, bare_response(request.head, top)) == (correlation, top, [])


# -- bodies that are kept, and understood later


@pytest.mark.parametrize(("api", "version"), ALL)
@sparsely
@given(data=st.data())
def test_a_kept_body_is_read_the_same_again_and_responds_for_every_partition(
    api: Api, version: int, data: st.DataObject
) -> None:
    frame = data.draw(frames(api, version))
    request, reader = read_request(frame), Reader(frame)
    head = read_head(reader)
    bodies = Bodies()
    body = bodies.intern(head, frame[reader.position :])
    assert bodies.intern(head, bytearray(frame[reader.position :])) is body
    assert bodies.kept_bytes == len(frame) - reader.position
    assert body.request(head, keep=True) == body.request(head) == request
    body.release()
    if api is not Api.UPDATE_METADATA:
        _, _, found = listed(api, version, head.correlation.to_bytes(4, "big") + body.response(11))
        assert {(partition, error) for _, partition, error in found} == {(e.partition, 11) for e in request.entries}
        assert len(found) >= len({(entry.topic, entry.partition) for entry in request.entries})


def test_bodies_that_differ_in_one_byte_are_kept_apart() -> None:
    fields = (1).to_bytes(4, "big") + b"\0" + (1).to_bytes(4, "big") + (1).to_bytes(8, "big")
    head = read_head(Reader(request_header(Api.UPDATE_METADATA, 8, 1, "c") + fields))
    bodies, data = Bodies(), bytes(1000)
    kept = [bodies.intern(head, data[:at] + b"\1" + data[at + 1 :]) for at in (0, 100, 500, 700, 999)]
    assert len(set(map(id, kept))) == 5
    assert [bodies.intern(head, body.data) is body for body in kept] == [True] * 5
    bodies.clear()
    assert bodies.kept_bytes == 0
