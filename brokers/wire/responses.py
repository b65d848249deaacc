"""Reads responses to LeaderAndIsr, UpdateMetadata and StopReplica, as cheaply as their content allows.

After a failover nearly every partition of a large LeaderAndIsr response has error 11 (the broker knows the leader epoch
already). The errors in it that a controller acts on are 56 (the log directory is offline) and 103 (the log has another
topic id). So large responses are first searched for the bytes of these, and read only where they occur. Responses to
StopReplica are always read: a partition without an error in them counts as deleted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.wire.errors import Error
from brokers.wire.primitives import Malformed, Reader
from brokers.wire.versions import Api

SMALL_RESPONSE_BYTES: Final = 4096
"""Responses up to this size are always read, so that other errors are found where it costs nothing."""

_SEARCHED: Final = tuple(
    error.to_bytes(2, "big") + b"\0" for error in (Error.KAFKA_STORAGE_ERROR, Error.INCONSISTENT_TOPIC_ID)
)
"""The codes and the empty tags behind them. With ids a zero byte follows: mostly not so at partitions 56 and 103."""
_HARMLESS: Final = frozenset({Error.NONE, Error.STALE_CONTROLLER_EPOCH})
_PARTITION_BYTES_MIN: Final = 7
_TOPIC_BYTES_MIN: Final = 18
_NAMED_PARTITION_BYTES_MIN: Final = 8

TopicKey = str | bytes
"""Name of a topic, or its 16-byte id, depending on the version."""


class Failure(NamedTuple):
    """A partition that the broker refused."""

    topic: TopicKey
    partition: int
    error: int


class Errors(NamedTuple):
    """The top-level error of a response and, where it was read, the failed partitions."""

    top: int
    failed: list[Failure]


def parse_response(api: Api, version: int, frame: bytes, correlation: int) -> Errors:
    """Reads the response to request ``correlation``; raises :class:`Malformed`. Per partition, 11 is no error."""
    reader = Reader(frame)
    if (found := reader.i32()) != correlation:
        raise Malformed(f"response to request {found} instead of request {correlation}")
    reader.skip_tags()
    top = reader.i16()
    if api is Api.UPDATE_METADATA:
        return Errors(top, [])
    by_id = api is Api.LEADER_AND_ISR and version >= 5
    if api is Api.LEADER_AND_ISR and len(frame) > SMALL_RESPONSE_BYTES:
        ends = b"\0" if by_id else b""
        if all(frame.find(code + ends, reader.position) < 0 for code in _SEARCHED):
            return Errors(top, [])
    failures = _by_topic_id(reader) if by_id else reader.compact_array(_named_failure, _NAMED_PARTITION_BYTES_MIN)
    reader.skip_tags()
    reader.end()
    return Errors(top, [failure for failure in failures if failure.error not in _HARMLESS])


def _by_topic_id(reader: Reader) -> list[Failure]:
    topics = reader.compact_array(_topic_failures, _TOPIC_BYTES_MIN)
    return [failure for topic in topics for failure in topic]


def _topic_failures(reader: Reader) -> list[Failure]:
    topic = reader.uuid()
    failures = reader.compact_array(lambda r: _failure(r, topic), _PARTITION_BYTES_MIN)
    reader.skip_tags()
    return failures


def _named_failure(reader: Reader) -> Failure:
    return _failure(reader, reader.compact_string())


def _failure(reader: Reader, topic: TopicKey) -> Failure:
    failure = Failure(topic, reader.i32(), reader.i16())
    reader.skip_tags()
    return failure
