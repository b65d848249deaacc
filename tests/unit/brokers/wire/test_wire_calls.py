"""Brokers' calls and the controller's replies: against kio, frames of real brokers, and malformed bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.wire.calls import (
    SERVED,
    AllocateProducerIdsCall,
    AlterPartitionCall,
    ApiVersionsCall,
    Call,
    ControlledShutdownCall,
    Header,
    IsrProposal,
    read_call,
    read_header,
)
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.replies import (
    AllocateProducerIdsReply,
    AlterPartitionReply,
    ControlledShutdownReply,
    PartitionReply,
    encode_api_versions,
    encode_reply,
    not_controller,
    refusal,
)
from tests.kit.wire import epochs, ids, names, part, quickly, read_response, to_uuid, unframe, write_request

TOPIC_ID = bytes(range(100, 116))


def topic_keys(version: int) -> st.SearchStrategy[str | bytes]:
    return st.just(TOPIC_ID) if version >= 2 else names


def read(frame: bytes) -> tuple[Header, Call]:
    reader = Reader(frame)
    header = read_header(reader)
    assert header.served
    return header, read_call(header, reader)


@pytest.mark.seed("S4-80")
@pytest.mark.parametrize("version", range(4))
@quickly
@given(data=st.data())
def test_alter_partition_of_every_version_is_read(version: int, data: st.DataObject) -> None:
    proposal = st.builds(
        IsrProposal,
        st.just("unset"),
        ids,
        epochs,
        st.lists(ids, max_size=4).map(tuple),
        epochs,
        st.booleans() if version >= 1 else st.just(False),
    )
    topics: dict[str | bytes, list[IsrProposal]] = data.draw(
        st.dictionaries(topic_keys(version), st.lists(proposal, max_size=3), max_size=3)
    )
    fields = tuple(topic_data(version, key, proposals) for key, proposals in topics.items())
    frame = write_request(56, version, 41, broker_id=3, broker_epoch=2**40, topics=fields)
    header, call = read(frame)
    assert (header.api, header.version, header.correlation) == (56, version, 41)
    wanted = [
        IsrProposal(key, p.partition, p.leader_epoch, p.isr, p.partition_epoch, p.recovering)
        for key, proposals in topics.items()
        for p in proposals
    ]
    assert call == AlterPartitionCall(version, 3, 2**40, tuple(wanted))


def topic_data(version: int, key: str | bytes, proposals: list[IsrProposal]) -> Any:
    partitions = tuple(
        part(
            56,
            version,
            "PartitionData",
            partition_index=p.partition,
            leader_epoch=p.leader_epoch,
            new_isr=p.isr,
            new_isr_with_epochs=tuple(member(version, b) for b in p.isr) if version >= 3 else (),
            leader_recovery_state=int(p.recovering),
            partition_epoch=p.partition_epoch,
        )
        for p in proposals
    )
    topic_id = to_uuid(key) if isinstance(key, bytes) else None
    return part(56, version, "TopicData", topic_name=key, topic_id=topic_id, partitions=partitions)


def member(version: int, broker: int) -> Any:
    return part(56, version, "BrokerState", broker_id=broker, broker_epoch=-1)


@pytest.mark.seed("S4-80")
@pytest.mark.parametrize("version", range(4))
@quickly
@given(data=st.data())
def test_replies_to_alter_partition_of_every_version_read_back(version: int, data: st.DataObject) -> None:
    state = st.builds(
        PartitionReply,
        topic_keys(version),
        ids,
        st.sampled_from([0, 41, 74, 95, 107]),
        st.integers(-1, 9),
        epochs,
        st.lists(ids, max_size=4).map(tuple),
        epochs,
        st.booleans() if version >= 1 else st.just(False),
    )
    states = data.draw(st.lists(state, max_size=5))
    call = AlterPartitionCall(version, 3, 9, ())
    frame = unframe([encode_reply(call, 41, AlterPartitionReply(0, states))])
    correlation, response = read_response(56, version, frame)
    assert (correlation, response.error_code, response.throttle_time.total_seconds()) == (41, 0, 0)
    found = [
        PartitionReply(
            topic.topic_id.bytes if version >= 2 else topic.topic_name,
            p.partition_index,
            int(p.error_code),
            p.leader_id,
            p.leader_epoch,
            p.isr,
            p.partition_epoch,
            bool(p.leader_recovery_state) if version >= 1 else False,
        )
        for topic in response.topics
        for p in topic.partitions
    ]
    topics = [topic.topic_id if version >= 2 else topic.topic_name for topic in response.topics]
    assert len(set(topics)) == len(topics)
    assert sorted(found, key=repr) == sorted(states, key=repr)


@pytest.mark.seed("S4-72")
@pytest.mark.parametrize("version", [2, 3])
@quickly
@given(broker=ids, epoch=st.integers(-1, 2**62), client_id=st.none() | names)
def test_controlled_shutdown_is_read(version: int, broker: int, epoch: int, client_id: str | None) -> None:
    _, call = read(write_request(7, version, 1, client_id, broker_id=broker, broker_epoch=epoch))
    assert call == ControlledShutdownCall(version, broker, epoch)


@pytest.mark.seed("S4-72")
@pytest.mark.parametrize("version", [2, 3])
@quickly
@given(error=st.sampled_from([0, 11, 77, -1]), remaining=st.lists(st.tuples(names, ids), max_size=4))
def test_replies_to_controlled_shutdown_read_back(version: int, error: int, remaining: list[tuple[str, int]]) -> None:
    call = ControlledShutdownCall(version, 1, -1)
    frame = unframe([encode_reply(call, 5, ControlledShutdownReply(error, remaining))])
    correlation, response = read_response(7, version, frame)
    assert (correlation, response.error_code) == (5, error)
    assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == remaining


@pytest.mark.seed("S4-87")
@quickly
@given(start=st.integers(-1, 2**62), length=st.integers(0, 1_000))
def test_a_call_for_producer_ids_is_read_and_its_reply_reads_back(start: int, length: int) -> None:
    _, call = read(write_request(67, 0, 8, broker_id=2, broker_epoch=57))
    assert call == AllocateProducerIdsCall(0, 2, 57)
    frame = unframe([encode_reply(call, 8, AllocateProducerIdsReply(0, start, length))])
    correlation, response = read_response(67, 0, frame)
    assert (correlation, response.error_code) == (8, 0)
    assert (response.producer_id_start, response.producer_id_len) == (start, length)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_of_every_version_is_read_and_its_reply_reads_back(version: int) -> None:
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"}
    _, call = read(write_request(18, version, 3, **(software if version >= 3 else {})))
    assert call == ApiVersionsCall(version)
    correlation, response = read_response(18, version, unframe([encode_api_versions(3, version)]))
    assert (correlation, response.error_code) == (3, 0)
    assert {key.api_key: (key.min_version, key.max_version) for key in response.api_keys} == {
        7: (2, 3),
        18: (0, 4),
        56: (0, 3),
        67: (0, 0),
    }


@pytest.mark.parametrize("version", [5, 6, 32767, -1])
def test_an_unknown_version_of_api_versions_gets_error_35_in_v0(version: int) -> None:
    correlation, response = read_response(18, 0, unframe([encode_api_versions(3, version)]))
    assert (correlation, response.error_code) == (3, 35)
    assert {key.api_key for key in response.api_keys} == set(SERVED)


GOLDEN = {
    "ApiVersions v4": (
        "00120004000000010001320012 6170616368652d6b61666b612d6a61766106332e392e3100",
        ApiVersionsCall(4),
    ),
    "AllocateProducerIds v0": (
        "00430000000000000001320000000002000000000000003900",
        AllocateProducerIdsCall(0, 2, 57),
    ),
    "ControlledShutdown v3": (
        "00070003000000000001320000000002000000000000003900",
        ControlledShutdownCall(3, 2, 57),
    ),
    "AlterPartition v3": (
        (
            "003800030000000000013100 00000001 0000000000000029 02 6465666768696a6b6c6d6e6f70717273 02 00000003"
            "00000001 04 00000001ffffffffffffffff00 00000002ffffffffffffffff00 00000003ffffffffffffffff00"
            "00 00000001 00 00 00"
        ),
        AlterPartitionCall(3, 1, 41, (IsrProposal(TOPIC_ID, 3, 1, (1, 2, 3), 1, recovering=False),)),
    ),
}


@pytest.mark.seed("S4-76")
@pytest.mark.parametrize("name", GOLDEN)
def test_frames_of_real_brokers_are_read(name: str) -> None:
    text, call = GOLDEN[name]
    assert read(bytes.fromhex(text))[1] == call


@pytest.mark.parametrize(("api", "version"), [(a, v) for a, r in SERVED.items() for v in (r[0] - 1, r[1] + 1)])
def test_other_versions_are_not_served(api: int, version: int) -> None:
    assert not Header(api, version, 1).served


@pytest.mark.parametrize("api", [0, 3, 4, 19, 58, 999, -1])
def test_other_apis_are_not_served(api: int) -> None:
    header = Header(api, 0, 1)
    assert not header.served
    with pytest.raises(BadMessage, match=f"API key {api} is not served"):
        read_call(header, Reader(b"\xff\xff\0\0\0\0\0"))


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_cut_short_is_malformed(name: str) -> None:
    frame = bytes.fromhex(GOLDEN[name][0])
    for damaged in [frame[:size] for size in range(8, len(frame))]:
        with pytest.raises(BadMessage):
            read(damaged)


def test_an_array_that_claims_four_billion_partitions_is_malformed() -> None:
    frame = bytes.fromhex("003800030000000000013100 00000001 0000000000000029 ffffffff0f")
    with pytest.raises(BadMessage, match="does not fit"):
        read(frame)


def test_an_unknown_recovery_state_is_malformed() -> None:
    frame = bytearray(bytes.fromhex(GOLDEN["AlterPartition v3"][0]))
    frame[-8] = 2
    with pytest.raises(BadMessage, match="recovery state 2"):
        read(bytes(frame))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (ControlledShutdownCall(3, 1, 9), 11),
        (AlterPartitionCall(3, 1, 9, ()), 41),
        (AllocateProducerIdsCall(0, 1, 9), 41),
    ],
)
def test_a_daemon_without_the_role_replies_with_the_error_that_brokers_expect(call: Call, error: int) -> None:
    assert not_controller(call).error == error
    assert refusal(call, 7).error == 7
    key = {ControlledShutdownCall: 7, AlterPartitionCall: 56, AllocateProducerIdsCall: 67}[type(call)]
    _, response = read_response(key, call.version, unframe([encode_reply(call, 1, not_controller(call))]))
    assert response.error_code == error


def test_a_reply_must_name_topics_as_the_call_did() -> None:
    with pytest.raises(AssertionError, match="v3 names topics by id"):
        encode_reply(AlterPartitionCall(3, 1, 9, ()), 1, AlterPartitionReply(0, [PartitionReply("name", 0)]))
