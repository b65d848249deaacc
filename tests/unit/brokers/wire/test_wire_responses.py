"""Responses of brokers as kio writes them, and DescribeLogDirs."""

from __future__ import annotations

import tracemalloc
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from brokers.wire.errors import Error, error_name
from brokers.wire.log_dirs import LogDirectories, encode_log_dirs, newest_version, read_log_dirs
from brokers.wire.messages import response_codec
from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.requests import SMALL_RESPONSE_BYTES, Errors, Failure, parse_response
from brokers.wire.versions import Api
from state_machines.model.types import LogDirectory, ReplicaLog
from tests.kit.wire import a_few, entities, part, quickly, read_request, schema_of, to_uuid, write_response, written

TOPIC = bytes(range(1, 17))
codes = st.sampled_from([0, 0, 0, 11, 11, 3, 56, 74, 103, -1])


def leader_and_isr(version: int, top: int, errors: list[int], start: int = 0) -> bytes:
    """Partitions ``start``, ``start`` + 1, ...: every third belongs to the next topic."""
    kind = "LeaderAndIsrPartitionError"
    groups: dict[int, list[Any]] = {}
    for p, code in enumerate(errors, start):
        entry = part(
            4, version, kind, response=True, topic_name=f"t{p // 3}", partition_index=p, error_code=ErrorCode(code)
        )
        groups.setdefault(p // 3, []).append(entry)
    if version < 5:
        flat = tuple(entry for group in groups.values() for entry in group)
        return write_response(4, version, 7, error_code=ErrorCode(top), partition_errors=flat)
    kind = "LeaderAndIsrTopicError"
    topics = tuple(
        part(4, version, kind, response=True, topic_id=to_uuid(id_of(t)), partition_errors=tuple(group))
        for t, group in groups.items()
    )
    return write_response(4, version, 7, error_code=ErrorCode(top), topics=topics)


def id_of(topic: int) -> bytes:
    return TOPIC[:14] + (1_000 + topic).to_bytes(2, "big")


def expected(version: int, errors: list[int], start: int = 0) -> list[Failure]:
    return [
        Failure(f"t{p // 3}" if version < 5 else id_of(p // 3), p, code)
        for p, code in enumerate(errors, start)
        if code not in (0, 11)
    ]


@pytest.mark.seed("S4-76")
@pytest.mark.parametrize("version", [4, 5, 6, 7])
@quickly
@given(top=codes, errors=st.lists(codes, max_size=20))
def test_errors_of_leader_and_isr_are_read_by_partition_without_harmless_ones(
    version: int, top: int, errors: list[int]
) -> None:
    frame = leader_and_isr(version, top, errors)
    assert parse_response(Api.LEADER_AND_ISR, version, frame, 7) == Errors(top, expected(version, errors))


@pytest.mark.parametrize("version", [4, 7])
def test_a_large_response_is_read_only_where_a_log_directory_is_offline(version: int) -> None:
    quiet, noisy = [11] * 600 + [3], [11] * 600 + [3, 11, 56, 11]
    frame = leader_and_isr(version, 0, quiet, 1_000)
    assert len(frame) > SMALL_RESPONSE_BYTES
    assert parse_response(Api.LEADER_AND_ISR, version, frame, 7) == Errors(0, [])
    frame = leader_and_isr(version, 0, noisy, 1_000)
    assert parse_response(Api.LEADER_AND_ISR, version, frame, 7) == Errors(0, expected(version, noisy, 1_000))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("place", [0, 1, 299, 598, 599])
@pytest.mark.parametrize("error", [56, 103])
def test_one_offline_or_foreign_replica_is_found_at_every_place(version: int, place: int, error: int) -> None:
    errors = [11] * 600
    errors[place] = error
    frame = leader_and_isr(version, 0, errors, 1_000)
    assert parse_response(Api.LEADER_AND_ISR, version, frame, 7).failed == expected(version, errors, 1_000)


@pytest.mark.seed("S4-76")
@pytest.mark.parametrize("version", [3, 4])
@quickly
@given(top=codes, errors=st.lists(codes, max_size=12))
def test_errors_of_stop_replica_are_read(version: int, top: int, errors: list[int]) -> None:
    kind = "StopReplicaPartitionError"
    entries = tuple(
        part(5, version, kind, response=True, topic_name="t", partition_index=p, error_code=ErrorCode(c))
        for p, c in enumerate(errors)
    )
    frame = write_response(5, version, 7, error_code=ErrorCode(top), partition_errors=entries)
    failed = [Failure("t", p, code) for p, code in enumerate(errors) if code not in (0, 11)]
    assert parse_response(Api.STOP_REPLICA, version, frame, 7) == Errors(top, failed)


@pytest.mark.parametrize("version", [6, 7, 8])
@pytest.mark.parametrize("code", [0, 11, 77])
def test_the_error_of_update_metadata_is_read(version: int, code: int) -> None:
    frame = write_response(6, version, 7, error_code=ErrorCode(code))
    assert parse_response(Api.UPDATE_METADATA, version, frame, 7) == Errors(code, [])


def test_a_response_to_another_request_is_malformed() -> None:
    with pytest.raises(BadMessage, match="response to request 7 instead of request 8"):
        parse_response(Api.UPDATE_METADATA, 8, write_response(6, 8, 7, error_code=ErrorCode(0)), 8)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_cut_response_is_malformed(cut: int) -> None:
    frame = leader_and_isr(7, 0, [0, 3])
    with pytest.raises(BadMessage):
        parse_response(Api.LEADER_AND_ISR, 7, frame[:-cut], 7)


@pytest.mark.parametrize("error", Error)
def test_error_codes_are_kafkas_and_are_named_with_their_number(error: Error) -> None:
    assert ErrorCode(error).name == error.name.lower()
    assert error_name(error) == f"{error.name} ({int(error)})"


def test_an_unknown_error_code_is_named_by_its_number() -> None:
    assert len(Error.__members__) == len(Error), "no two names have one code"
    assert error_name(9_999) == "error 9999"


VERSIONS = range(5)
KEY = Api.DESCRIBE_LOG_DIRS
CORRELATION = 7


def header(version: int) -> bytes:
    return CORRELATION.to_bytes(4, "big") + (b"\0" if version >= 2 else b"")


def read(version: int, frame: bytes, **bounds: int) -> LogDirectories:
    return read_log_dirs(version, frame, CORRELATION, **bounds)


def response(version: int, directories: tuple[LogDirectory, ...], error: int = 0) -> bytes:
    """Writes a response with kio; the volume has 5 bytes."""
    made = partial(part, KEY, version, response=True)
    results = []
    for directory in directories:
        names = list(dict.fromkeys(log.topic for log in directory.logs))
        topics = tuple(
            made(
                "DescribeLogDirsTopic",
                name=name,
                partitions=tuple(
                    made(
                        "DescribeLogDirsPartition",
                        partition_index=log.partition,
                        partition_size=log.size_bytes,
                        offset_lag=log.offset_lag,
                        is_future_key=log.is_future,
                    )
                    for log in directory.logs
                    if log.topic == name
                ),
            )
            for name in names
        )
        fields: dict[str, Any] = {"total_bytes": 5, "usable_bytes": 5, "error_code": ErrorCode(directory.error)}
        results.append(made("DescribeLogDirsResult", log_dir=directory.path, topics=topics, **fields))
    top: dict[str, Any] = {"error_code": ErrorCode(error)} if version >= 3 else {}
    return write_response(KEY, version, CORRELATION, throttle_time=timedelta(), results=tuple(results), **top)


THREE = (
    LogDirectory("/a", 0, (ReplicaLog("t", 0, 2**40, 0, False), ReplicaLog("t", 3, 0, -1, True))),
    LogDirectory("/b", 56),
    LogDirectory("/c", 0, (ReplicaLog("t", 0, 1, 2**40, True), ReplicaLog("u", 2**31 - 1, 2**63 - 1, 9, False))),
)
THREE_ITEMS = 3 + 3 + 4
"""Directories, topics and replicas."""


# -- requests


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [None, {}, {"t": (0, 5)}, {"t": (0,), "u": ()}])
def test_kio_reads_requests_as_they_were_meant(version: int, partitions: dict[str, tuple[int, ...]] | None) -> None:
    frame = encode_log_dirs(version, CORRELATION, "regent", partitions)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    head, entity = read_request(frame[4:])
    assert (head.request_api_version, head.correlation_id, head.client_id) == (version, CORRELATION, "regent")
    found = None if entity.topics is None else {topic.topic: topic.partitions for topic in entity.topics}
    assert found == partitions


@pytest.mark.parametrize(
    ("offered", "version"),
    [((0, 4), 4), ((0, 9), 4), ((0, 1), 1), ((1, 3), 3), ((4, 7), 4), ((5, 7), None), ((0, -1), None)],
)
def test_the_newest_version_of_both_sides_is_in_use(offered: tuple[int, int], version: int | None) -> None:
    assert newest_version(offered) == version


# -- responses


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("directories", [(), THREE[1:2], THREE], ids=["none", "offline", "three"])
def test_responses_are_read_in_every_version(version: int, directories: tuple[LogDirectory, ...]) -> None:
    for error in (0, 31):
        found = read(version, response(version, directories, error))
        assert found == LogDirectories(error if version >= 3 else 0, directories)


@pytest.mark.parametrize("version", VERSIONS)
@a_few
@given(data=st.data())
def test_any_response_of_kio_is_read_as_the_general_codec_reads_it(version: int, data: st.DataObject) -> None:
    body = written(data.draw(entities(schema_of((KEY, version, True)))))
    frame = header(version) + body
    wanted = response_codec(KEY, version).read(Reader(body))
    found = read(version, frame)
    assert found.error == wanted.error_code
    assert [(d.path, d.error) for d in found.directories] == [(r.log_dir, r.error_code) for r in wanted.results]
    assert [log for directory in found.directories for log in directory.logs] == [
        ReplicaLog(topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
        for result in wanted.results
        for topic in result.topics
        for p in topic.partitions
    ]


def test_unknown_tagged_fields_of_any_replica_are_skipped() -> None:
    plain = bytes.fromhex("0000000c 0000000000000005 0000000000000006 01")
    tagged, untagged = plain + b"\1\x09\3abc", plain + b"\0"
    log = ReplicaLog("t", 12, 5, 6, True)
    for records in ([tagged], [untagged, tagged], [tagged, untagged], [untagged, tagged, untagged]):
        topic = b"\2t" + bytes((len(records) + 1,)) + b"".join(records) + b"\0"
        frame = header(3) + bytes(4) + bytes(2) + b"\2" + bytes(2) + b"\3/a" + b"\2" + topic + b"\0\0"
        assert read(3, frame).directories == (LogDirectory("/a", 0, (log,) * len(records)),)


# -- malformed bytes


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_that_ends_too_early_or_too_late_is_malformed(version: int) -> None:
    whole = response(version, THREE)
    for size in range(len(whole)):
        with pytest.raises(BadMessage):
            read(version, whole[:size])
    with pytest.raises(BadMessage, match="1 bytes follow"):
        read(version, whole + b"\0")


def test_log_directories_for_another_request_are_malformed() -> None:
    with pytest.raises(BadMessage, match="response to request 7 instead of request 8"):
        read_log_dirs(4, response(4, THREE), 8)


@pytest.mark.parametrize("version", VERSIONS)
def test_more_items_than_the_bound_are_malformed(version: int) -> None:
    whole = response(version, THREE)
    assert len(read(version, whole, replicas_max=THREE_ITEMS).directories) == 3
    with pytest.raises(BadMessage, match="more array items"):
        read(version, whole, replicas_max=THREE_ITEMS - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_claimed_length_costs_more_than_the_frame(version: int) -> None:
    claims = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08")
    frames = [header(version) + bytes(n) + claim + bytes(60) for claim in claims for n in range(24)]
    tracemalloc.start()
    try:
        for frame in frames:
            try:
                read(version, frame)
            except BadMessage:
                pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("version", VERSIONS)
@given(noise=st.binary(max_size=200), at=st.integers(0, 300), cut=st.integers(0, 40))
def test_changed_bytes_are_read_or_malformed(version: int, noise: bytes, at: int, cut: int) -> None:
    whole = response(version, THREE)
    frame = whole[:at] + noise + whole[at + cut :]
    try:
        found = read(version, frame)
    except BadMessage:
        return
    listed = sum(len(directory.logs) for directory in found.directories)
    assert listed * 21 <= len(frame), "each listed replica was in the frame"
