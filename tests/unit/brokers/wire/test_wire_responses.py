"""Responses of brokers, as kio writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from brokers.wire.errors import Error, error_name
from brokers.wire.primitives import Malformed
from brokers.wire.responses import SMALL_RESPONSE_BYTES, Errors, Failure, parse_response
from brokers.wire.versions import Api
from tests.kit.wire_kit import part, quickly, to_uuid, write_response

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
    with pytest.raises(Malformed, match="response to request 7 instead of request 8"):
        parse_response(Api.UPDATE_METADATA, 8, write_response(6, 8, 7, error_code=ErrorCode(0)), 8)


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_cut_response_is_malformed(cut: int) -> None:
    frame = leader_and_isr(7, 0, [0, 3])
    with pytest.raises(Malformed):
        parse_response(Api.LEADER_AND_ISR, 7, frame[:-cut], 7)


@pytest.mark.parametrize("error", Error)
def test_error_codes_are_kafkas_and_are_named_with_their_number(error: Error) -> None:
    assert ErrorCode(error).name == error.name.lower()
    assert error_name(error) == f"{error.name} ({int(error)})"


def test_an_unknown_error_code_is_named_by_its_number() -> None:
    assert len(Error.__members__) == len(Error), "no two names have one code"
    assert error_name(9_999) == "error 9999"
