"""Decodes LeaderAndIsr v4 to v7, UpdateMetadata v6 to v8 and StopReplica v3 and v4 as a broker does.

Requests of every controller are read, Kafka's own included; a million partitions in one request are no exception. Sizes
are checked against the bytes that are left before anything is built, so hostile frames cost no more than a small
multiple of their own length. Bytes against the protocol raise :class:`brokers.wire.primitives.BadMessage`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from brokers.wire.primitives import ZERO_ID, BadMessage, Reader
from brokers.wire.versions import Api
from state_machines.model.types import Broker, Endpoint
from testing.simulated.values import (
    NO_BROKER_EPOCH,
    Head,
    LeaderAndIsr,
    LeaderAndIsrEntry,
    MetadataEntry,
    Request,
    StopEntry,
    StopReplica,
    UpdateMetadata,
)

VERSIONS: Final = {Api.LEADER_AND_ISR: (4, 7), Api.UPDATE_METADATA: (6, 8), Api.STOP_REPLICA: (3, 4)}
"""First and last version of each request that is read: those that controllers send from IBP 2.4-IV1 on."""

_Fields = tuple[int, int, int, int, tuple[int, ...], int, tuple[int, ...]]
"""Partition, controller epoch, leader, leader epoch, ISR, partition epoch, replicas."""

_PREFIX, _EPOCHS, _EPOCHS_KRAFT = struct.Struct(">hhi"), struct.Struct(">iiq"), struct.Struct(">i?iq")
_HEAD: Final = struct.Struct(">iiii").unpack_from
_I32: Final = struct.Struct(">i").unpack_from
_STOP: Final = struct.Struct(">ii?").unpack_from
_HEAD_BYTES: Final = 16
_SMALL: Final = 0x80
_IDS: Final = tuple(struct.Struct(f">{n}i").unpack_from for n in range(_SMALL - 1))
TOPIC_BYTES_MIN: Final = 3
_ENTRY_BYTES_MIN: Final = {Api.LEADER_AND_ISR: 26, Api.UPDATE_METADATA: 24, Api.STOP_REPLICA: 10}


def read_request(frame: bytes) -> Request:
    """Decodes a request after its 4-byte length; raises :class:`BadMessage`."""
    reader = Reader(frame, items_max=len(frame))
    return read_body(read_head(reader), reader)


def read_body(head: Head, reader: Reader) -> Request:
    """Decodes the rest of a request, at which ``reader`` stands; raises :class:`BadMessage`."""
    try:
        request = _BODIES[head.api](reader, head)
        reader.end()
    except (struct.error, IndexError):
        raise BadMessage(f"the request ends too early, after {len(reader.data)} bytes") from None
    return request


def read_head(reader: Reader) -> Head:
    """Decodes the header and the controller's fields; ``reader`` stands at the body afterwards.

    Raises :class:`BadMessage`.
    """
    api, version, correlation = _take(reader, _PREFIX)
    first, last = VERSIONS.get(api, (0, -1))
    if not first <= version <= last:
        raise BadMessage(f"API key {api} v{version} is not one of {', '.join(_known())}")
    client = reader.legacy_nullable_string()
    reader.skip_tags()
    if version == last:
        controller, kraft, epoch, broker_epoch = _take(reader, _EPOCHS_KRAFT)
    else:
        (controller, epoch, broker_epoch), kraft = _take(reader, _EPOCHS), False
    return Head(Api(api), version, correlation, client, controller, kraft, epoch, broker_epoch)


def _known() -> list[str]:
    return [f"{api.name} v{first} to v{last}" for api, (first, last) in VERSIONS.items()]


def _take(reader: Reader, layout: struct.Struct) -> tuple[Any, ...]:
    try:
        fields = layout.unpack_from(reader.data, reader.position)
    except struct.error:
        raise BadMessage(f"the header ends too early, at {reader.position}") from None
    reader.position += layout.size
    return fields


def _leader_and_isr(reader: Reader, head: Head) -> LeaderAndIsr:
    kind = reader.i8() if head.version >= 5 else 0
    entries: list[LeaderAndIsrEntry] = []
    recovery = head.version >= 6

    def partitions(name: str, topic_id: bytes | None, data: bytes, pos: int, count: int) -> int:
        for _ in range(count):
            fields, pos = _partition(data, pos)
            adding, pos = _ids(data, pos)
            removing, pos = _ids(data, pos)
            is_new, recovering = data[pos] != 0, recovery and data[pos + 1] != 0
            pos = _end(data, pos + 1 + recovery)
            entries.append(LeaderAndIsrEntry(name, topic_id, *fields, adding, removing, is_new, recovering))
        return pos

    _topics(reader, head, partitions)
    live_leaders = reader.compact_array(_live_leader, 10)
    reader.skip_tags()
    return LeaderAndIsr(head, kind, entries, tuple(live_leaders))


def _live_leader(reader: Reader) -> tuple[int, str, int]:
    leader = reader.i32(), reader.compact_string(), reader.i32()
    reader.skip_tags()
    return leader


def _update_metadata(reader: Reader, head: Head) -> UpdateMetadata:
    entries: list[MetadataEntry] = []

    def partitions(name: str, topic_id: bytes | None, data: bytes, pos: int, count: int) -> int:
        for _ in range(count):
            fields, pos = _partition(data, pos)
            offline, pos = _ids(data, pos)
            pos = _end(data, pos)
            entries.append(MetadataEntry(name, topic_id, *fields, offline))
        return pos

    topics = _topics(reader, head, partitions)
    live = tuple(reader.compact_array(_live_broker, 7))
    kind = _kind(reader)
    return UpdateMetadata(head, kind, entries, topics, live)


def _kind(reader: Reader) -> int:
    """Decodes the tags of an UpdateMetadata, of which field 0 is its type (v8)."""
    kind, last = 0, -1
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        if tag <= last:
            raise BadMessage(f"tagged field {tag} follows {last}")
        last = tag
        if tag == 0 and size == 1:
            kind = reader.i8()
        elif reader.position + size > len(reader.data):
            raise BadMessage(f"tagged field {tag} of {size} bytes does not fit")
        else:
            reader.position += size
    return kind


def _live_broker(reader: Reader) -> Broker:
    broker = reader.i32()
    endpoints = tuple(reader.compact_array(_endpoint, 9))
    if reader.data[reader.position] == 0:
        reader.position += 1
        rack = None
    else:
        rack = reader.compact_string()
    reader.skip_tags()
    return Broker(broker, NO_BROKER_EPOCH, endpoints, rack)


def _endpoint(reader: Reader) -> Endpoint:
    port, host, listener, protocol = reader.i32(), reader.compact_string(), reader.compact_string(), reader.i16()
    reader.skip_tags()
    return Endpoint(listener, host, port, protocol)


def _stop_replica(reader: Reader, head: Head) -> StopReplica:
    entries: list[StopEntry] = []

    def partitions(name: str, topic_id: bytes | None, data: bytes, pos: int, count: int) -> int:
        for _ in range(count):
            partition, leader_epoch, delete = _STOP(data, pos)
            pos = _end(data, pos + 9)
            entries.append(StopEntry(name, partition, leader_epoch, delete))
        return pos

    _topics(reader, head, partitions)
    reader.skip_tags()
    return StopReplica(head, entries)


Partitions = Callable[[str, bytes | None, bytes, int, int], int]
"""Reads the partitions of a topic: name, topic id, bytes, position, count -> position behind them."""


def _topics(reader: Reader, head: Head, partitions: Partitions) -> dict[str, bytes | None]:
    """Decodes the array of topics; returns their ids by name."""
    with_ids = head.version >= {Api.LEADER_AND_ISR: 5, Api.UPDATE_METADATA: 7}.get(head.api, 0x7FFF)
    found: dict[str, bytes | None] = {}
    for _ in range(count_items(reader, TOPIC_BYTES_MIN)):
        name = reader.compact_string()
        topic_id = reader.uuid() if with_ids else ZERO_ID
        found[name] = known = topic_id if topic_id != ZERO_ID else None
        count = count_items(reader, _ENTRY_BYTES_MIN[head.api])
        reader.position = _end(reader.data, partitions(name, known, reader.data, reader.position, count))
    return found


def count_items(reader: Reader, item_bytes_min: int) -> int:
    """Decodes the length of a compact array, checked against the bytes that are left; raises :class:`BadMessage`."""
    count = reader.varint() - 1
    if count < 0 or count * item_bytes_min > len(reader.data) - reader.position:
        raise BadMessage(f"array of {count} items at {reader.position} does not fit into {len(reader.data)} bytes")
    return count


def _partition(data: bytes, pos: int) -> tuple[_Fields, int]:
    """Decodes the fields that LeaderAndIsr and UpdateMetadata share; returns the position behind them, too."""
    partition, controller_epoch, leader, leader_epoch = _HEAD(data, pos)
    isr, pos = _ids(data, pos + _HEAD_BYTES)
    (partition_epoch,) = _I32(data, pos)
    replicas, pos = _ids(data, pos + 4)
    return (partition, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas), pos


def _ids(data: bytes, pos: int) -> tuple[tuple[int, ...], int]:
    """Decodes a compact array of int32; returns the position behind it, too."""
    size = data[pos]
    if 0 < size < _SMALL:
        return _IDS[size - 1](data, pos + 1), pos + 4 * size - 3
    reader = Reader(data)
    reader.position = pos
    count = count_items(reader, 4)
    return struct.unpack_from(f">{count}i", data, reader.position), reader.position + 4 * count


def _end(data: bytes, pos: int) -> int:
    """Returns the position behind a section of tagged fields."""
    if data[pos] == 0:
        return pos + 1
    reader = Reader(data)
    reader.position = pos
    reader.skip_tags()
    return reader.position


_BODIES: Final[dict[Api, Callable[[Reader, Head], Request]]] = {
    Api.LEADER_AND_ISR: _leader_and_isr,
    Api.UPDATE_METADATA: _update_metadata,
    Api.STOP_REPLICA: _stop_replica,
}
