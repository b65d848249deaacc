"""Encodes the controller's replies to brokers' calls, by the version of the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from brokers.wire.calls import (
    SERVED,
    AllocateProducerIdsCall,
    AlterPartitionCall,
    ApiVersionsCall,
    Call,
    ControlledShutdownCall,
)
from brokers.wire.errors import Error
from brokers.wire.partitions import id_array
from brokers.wire.primitives import NO_TAGS, compact_string, legacy_string, varint
from brokers.wire.versions import Api

_I16, _I32, _I64 = Layout(">h").pack, Layout(">i").pack, Layout(">q").pack
_NO_THROTTLE: Final = bytes(4)
_API_RANGE = Layout(">hhh").pack
_STATE = Layout(">ihii").pack
_NO_ID: Final = -1


class ControlledShutdownReply(Struct, frozen=True):
    """The reply to ControlledShutdown. ``remaining``: (topic, partition) that the broker leads; any makes it retry."""

    error: int
    remaining: Sequence[tuple[str, int]] = ()


class PartitionReply(Struct, frozen=True, gc=False):
    """The state of one partition after an accepted ISR change, or the error of a refused one (without a state)."""

    topic: str | bytes
    partition: int
    error: int = Error.NONE
    leader: int = -1
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    partition_epoch: int = 0
    recovering: bool = False


class AlterPartitionReply(Struct, frozen=True):
    """The reply to AlterPartition: ``partitions`` in the order of the call's proposals, their topics as in the call."""

    error: int
    partitions: Sequence[PartitionReply] = ()


class AllocateProducerIdsReply(Struct, frozen=True):
    """A block of ``length`` producer ids from ``start`` on."""

    error: int
    start: int = _NO_ID
    length: int = 0


Reply = ControlledShutdownReply | AlterPartitionReply | AllocateProducerIdsReply


def refusal(call: Call, error: int) -> Reply:
    """Returns the reply with nothing but an error."""
    match call:
        case ControlledShutdownCall():
            return ControlledShutdownReply(error)
        case AlterPartitionCall():
            return AlterPartitionReply(error)
        case AllocateProducerIdsCall():
            return AllocateProducerIdsReply(error)
        case ApiVersionsCall():
            raise TypeError("ApiVersions always gets the versions as its response")


def not_controller(call: Call) -> Reply:
    """Returns the reply of a daemon that does not hold the role: the broker looks the controller up again."""
    is_shutdown = isinstance(call, ControlledShutdownCall)
    return refusal(call, Error.STALE_CONTROLLER_EPOCH if is_shutdown else Error.NOT_CONTROLLER)


def encode_reply(call: Call, correlation: int, reply: Reply) -> bytes:
    """Returns one framed response."""
    if isinstance(reply, ControlledShutdownReply):
        if call.version < 3:
            return _framed(correlation, _legacy_controlled_shutdown(reply))
        body = _controlled_shutdown(reply)
    elif isinstance(reply, AlterPartitionReply):
        body = _alter_partition(reply, call.version)
    else:
        body = _NO_THROTTLE + _I16(reply.error) + _I64(reply.start) + _I32(reply.length)
    return _framed(correlation, NO_TAGS + body + NO_TAGS)


def encode_api_versions(correlation: int, version: int, offered: Mapping[Api, tuple[int, int]] = SERVED) -> bytes:
    """Encodes ApiVersions v0 to v4, always with response header v0; others get UNSUPPORTED_VERSION with a v0 body."""
    known = SERVED[Api.API_VERSIONS]
    if not known[0] <= version <= known[1]:
        return _framed(correlation, _I16(Error.UNSUPPORTED_VERSION) + _api_ranges(offered, flexible=False))
    flexible = version >= 3
    throttle = _NO_THROTTLE if version >= 1 else b""
    return _framed(
        correlation,
        _I16(Error.NONE) + _api_ranges(offered, flexible=flexible) + throttle + (NO_TAGS if flexible else b""),
    )


def _api_ranges(offered: Mapping[Api, tuple[int, int]], *, flexible: bool) -> bytes:
    count = varint(len(offered) + 1) if flexible else _I32(len(offered))
    end = NO_TAGS if flexible else b""
    return count + b"".join(_API_RANGE(api, *versions) + end for api, versions in offered.items())


def _legacy_controlled_shutdown(reply: ControlledShutdownReply) -> bytes:
    items = [legacy_string(topic) + _I32(partition) for topic, partition in reply.remaining]
    return _I16(reply.error) + _I32(len(items)) + b"".join(items)


def _controlled_shutdown(reply: ControlledShutdownReply) -> bytes:
    items = [compact_string(topic) + _I32(partition) + NO_TAGS for topic, partition in reply.remaining]
    return _I16(reply.error) + varint(len(items) + 1) + b"".join(items)


def _alter_partition(reply: AlterPartitionReply, version: int) -> bytes:
    topics: dict[str | bytes, list[bytes]] = {}
    for partition in reply.partitions:
        topics.setdefault(partition.topic, []).append(_partition(partition, version))
    pieces = [
        _topic(topic, version) + varint(len(items) + 1) + b"".join(items) + NO_TAGS for topic, items in topics.items()
    ]
    return _NO_THROTTLE + _I16(reply.error) + varint(len(pieces) + 1) + b"".join(pieces)


def _topic(topic: str | bytes, version: int) -> bytes:
    by_id = isinstance(topic, bytes)
    assert by_id == (version >= 2), f"AlterPartition v{version} names topics by {'id' if version >= 2 else 'name'}"
    return topic if isinstance(topic, bytes) else compact_string(topic)


def _partition(state: PartitionReply, version: int) -> bytes:
    recovery = bytes((state.recovering,)) if version >= 1 else b""
    fields = _STATE(state.partition, state.error, state.leader, state.leader_epoch)
    return fields + id_array(state.isr) + recovery + _I32(state.partition_epoch) + NO_TAGS


def _framed(correlation: int, rest: bytes) -> bytes:
    return _I32(len(rest) + 4) + _I32(correlation) + rest
