"""Encodes and decodes AlterPartition and ControlledShutdown from the brokers' side.

Frames come without their 4-byte length. Responses are read as :mod:`brokers.wire.calls` reads calls: nothing is built
that the bytes do not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout

from msgspec import Struct

from brokers.wire.partitions import id_array
from brokers.wire.primitives import NO_TAGS, BadMessage, Reader, compact_string, legacy_string, varint
from brokers.wire.requests import request_header
from brokers.wire.versions import Api
from state_machines.model.types import Leadership
from testing.simulated.values import Key

CONTROLLED_SHUTDOWN_VERSION = 3
ALTER_PARTITION_IDS = 2
"""First version of AlterPartition that names topics by id."""

_BROKER = Layout(">iq").pack
_I32 = Layout(">i").pack
_TWO = Layout(">ii").pack
_MEMBER = Layout(">iqx").pack
_NO_MEMBER_EPOCH = -1


class IsrChange(Struct, frozen=True):
    """The ISR that a leader requests. ``controller_epoch`` is that of the decision that made it leader."""

    key: Key
    topic_id: bytes | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class PartitionResponse(Struct, frozen=True, gc=False):
    """The controller's response for one partition; ``state`` (its version is the partition epoch) counts if error 0."""

    topic: str | bytes
    partition: int
    error: int
    state: Leadership


class ShutdownResponse(Struct, frozen=True):
    """A response to ControlledShutdown. Anything but error 0 and no ``remaining`` leaderships is a failed try."""

    error: int
    remaining: tuple[Key, ...]


def _header(api: Api, version: int, correlation: int, broker: int) -> bytes:
    return request_header(api, version, correlation, legacy_string(str(broker)))


def controlled_shutdown(correlation: int, broker: int, epoch: int) -> bytes:
    """Encodes ControlledShutdown v3."""
    head = _header(Api.CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN_VERSION, correlation, broker)
    return head + _BROKER(broker, epoch) + NO_TAGS


def shutdown_response(frame: bytes) -> ShutdownResponse:
    """Decodes the response to it; raises :class:`BadMessage`."""
    reader = Reader(frame)
    reader.i32()
    reader.skip_tags()
    error = reader.i16()
    remaining = reader.compact_array(_remaining, 6)
    reader.skip_tags()
    reader.end()
    return ShutdownResponse(error, tuple(remaining))


def _remaining(reader: Reader) -> Key:
    found = reader.compact_string(), reader.i32()
    reader.skip_tags()
    return found


def alter_partition(version: int, correlation: int, broker: int, epoch: int, changes: Sequence[IsrChange]) -> bytes:
    """Encodes AlterPartition v0 to v3; from v2 on every change needs a topic id. Leaders always send *recovered*."""
    topics: dict[str, list[IsrChange]] = {}
    for change in changes:
        topics.setdefault(change.key[0], []).append(change)
    pieces = [_topic(version, topic, found) for topic, found in topics.items()]
    head = _header(Api.ALTER_PARTITION, version, correlation, broker) + _BROKER(broker, epoch)
    return head + varint(len(pieces) + 1) + b"".join(pieces) + NO_TAGS


def _topic(version: int, name: str, changes: list[IsrChange]) -> bytes:
    if version >= ALTER_PARTITION_IDS:
        named = changes[0].topic_id
        assert named is not None, f"AlterPartition v{version} names topics by id"
    else:
        named = compact_string(name)
    return named + varint(len(changes) + 1) + b"".join([_change(version, change) for change in changes]) + NO_TAGS


def _change(version: int, change: IsrChange) -> bytes:
    if version >= 3:
        members = [_MEMBER(member, _NO_MEMBER_EPOCH) for member in change.isr]
        isr = varint(len(members) + 1) + b"".join(members)
    else:
        isr = id_array(change.isr)
    recovered = b"\0" if version >= 1 else b""
    head = _TWO(change.key[1], change.leader_epoch)
    return head + isr + recovered + _I32(change.partition_epoch) + NO_TAGS


def alter_partition_response(version: int, frame: bytes) -> tuple[int, int, list[PartitionResponse]]:
    """Decodes correlation id, top-level error and every partition of a response; raises :class:`BadMessage`."""
    reader = Reader(frame)
    correlation = reader.i32()
    reader.skip_tags()
    reader.i32()
    error = reader.i16()
    topics = reader.compact_array(lambda r: _responses(version, r), 3)
    reader.skip_tags()
    reader.end()
    return correlation, error, [response for topic in topics for response in topic]


def _responses(version: int, reader: Reader) -> list[PartitionResponse]:
    topic = reader.uuid() if version >= ALTER_PARTITION_IDS else reader.compact_string()
    found = reader.compact_array(lambda r: _response(version, topic, r), 20)
    reader.skip_tags()
    return found


def _response(version: int, topic: str | bytes, reader: Reader) -> PartitionResponse:
    partition, error, leader, leader_epoch = reader.i32(), reader.i16(), reader.i32(), reader.i32()
    isr = tuple(reader.compact_array(Reader.i32, 4))
    recovery = reader.i8() if version >= 1 else 0
    if recovery not in (0, 1):
        raise BadMessage(f"leader recovery state {recovery} is neither 0 nor 1")
    state = Leadership(leader, leader_epoch, isr, 0, reader.i32(), recovery == 1)
    reader.skip_tags()
    return PartitionResponse(topic, partition, error, state)
