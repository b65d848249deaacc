"""Frames LeaderAndIsr, UpdateMetadata and StopReplica, whose bodies all brokers share, and reads their responses.

``isKRaftController`` is always false (on true a broker responds with an unknown error). The type of LeaderAndIsr is
always 0, as from every controller in ZooKeeper mode. ``LiveLeaders`` stays empty: brokers take addresses from
UpdateMetadata. Request header v2 (flexible) needs no ApiVersions handshake; Kafka's controller sends none, either.

After a failover nearly every partition of a large LeaderAndIsr response has error 11 (the broker knows the leader epoch
already). The errors in it that a controller acts on are 56 (the log directory is offline) and 103 (the log has another
topic id). So large responses are first searched for the bytes of these, and read only where they occur. Responses to
StopReplica are always read: a partition without an error in them counts as deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from brokers.wire.errors import Error
from brokers.wire.primitives import (
    EMPTY_ARRAY,
    NO_TAGS,
    BadMessage,
    Reader,
    compact_nullable_string,
    compact_string,
    legacy_string,
    varint,
)
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker

EMPTY_BODY: Final = EMPTY_ARRAY
"""A body without topics: that of an UpdateMetadata with the live list alone."""

_LENGTH = Struct(">i").pack
_HEADER = Struct(">hhi").pack
_PORT = Struct(">i").pack
_ID = Struct(">i").pack
_PROTOCOL = Struct(">h").pack


def request_header(api: int, version: int, correlation: int, client: bytes) -> bytes:
    """Returns request header v2; ``client`` is the client id as a string with its 16-bit length."""
    return _HEADER(api, version, correlation) + client + NO_TAGS


class Requests:
    """Makes the frames of one controller term at one IBP. Each is a list of parts to write one after the other."""

    def __init__(self, ibp: Ibp, controller_id: int, controller_epoch: int) -> None:
        self.versions = {
            Api.LEADER_AND_ISR: ibp.leader_and_isr_version,
            Api.UPDATE_METADATA: ibp.update_metadata_version,
            Api.STOP_REPLICA: ibp.stop_replica_version,
        }
        self._kraft = ibp.update_metadata_version >= 8
        self._typed = ibp.leader_and_isr_version >= 5
        self._controller = controller_id, controller_epoch
        self._client = legacy_string(str(controller_id))
        self._fields = Struct(">i?iq" if self._kraft else ">iiq").pack

    def leader_and_isr(self, correlation: int, broker_epoch: int, body: bytes) -> list[bytes]:
        """Returns LeaderAndIsr v4 to v7."""
        kind = b"\0" if self._typed else b""
        return self._frame(Api.LEADER_AND_ISR, correlation, broker_epoch, kind, body, EMPTY_ARRAY + NO_TAGS)

    def update_metadata(self, correlation: int, broker_epoch: int, body: bytes, live: bytes) -> list[bytes]:
        """Returns UpdateMetadata v6 to v8; ``live`` is the whole live list, which replaces the broker's one."""
        return self._frame(Api.UPDATE_METADATA, correlation, broker_epoch, b"", body, live + NO_TAGS)

    def stop_replica(self, correlation: int, broker_epoch: int, body: bytes) -> list[bytes]:
        """Returns StopReplica v3 and v4."""
        return self._frame(Api.STOP_REPLICA, correlation, broker_epoch, b"", body, NO_TAGS)

    def _frame(
        self, api: Api, correlation: int, broker_epoch: int, kind: bytes, body: bytes, rest: bytes
    ) -> list[bytes]:
        head = request_header(api, self.versions[api], correlation, self._client)
        controller_id, epoch = self._controller
        identity = (controller_id, False, epoch) if self._kraft else (controller_id, epoch)
        head += self._fields(*identity, broker_epoch) + kind
        return [_LENGTH(len(head) + len(body) + len(rest)) + head, body, rest]


def live_list(brokers: Iterable[Broker]) -> bytes:
    """Encodes the live brokers with all their endpoints, as in UpdateMetadata v6 to v8."""
    entries = [_live_broker(broker) for broker in brokers]
    return varint(len(entries) + 1) + b"".join(entries)


def _live_broker(broker: Broker) -> bytes:
    endpoints = [
        _PORT(e.port) + compact_string(e.host) + compact_string(e.listener) + _PROTOCOL(e.security_protocol) + NO_TAGS
        for e in broker.endpoints
    ]
    count = varint(len(endpoints) + 1)
    return _ID(broker.id) + count + b"".join(endpoints) + compact_nullable_string(broker.rack) + NO_TAGS


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
    """Reads the response to request ``correlation``; raises :class:`BadMessage`. Per partition, 11 is no error."""
    reader = Reader(frame)
    if (found := reader.i32()) != correlation:
        raise BadMessage(f"response to request {found} instead of request {correlation}")
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
