"""Reads brokers' calls to the controller: ApiVersions, ControlledShutdown, AlterPartition, AllocateProducerIds.

The reader is :class:`brokers.wire.primitives.Reader`, which bounds allocations by the size of the frame. Only tests use
kio, as the reference: its native reader reserves memory for whatever length an array claims, and ends the process where
that fails. So kio never parses unrequested input.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.primitives import BadMessage, Reader
from brokers.wire.versions import Api

SERVED: Final = {
    Api.CONTROLLED_SHUTDOWN: (2, 3),
    Api.API_VERSIONS: (0, 4),
    Api.ALTER_PARTITION: (0, 3),
    Api.ALLOCATE_PRODUCER_IDS: (0, 0),
}
"""Versions that the controller listener offers, for brokers of every IBP from 2.4 on.

ControlledShutdown before v2 has no broker epoch, so it does not prove that its sender is the broker.
"""

RELAYED: Final = frozenset(SERVED.keys() - {Api.API_VERSIONS})
"""APIs that an admin endpoint relays to the controller where brokers share a listener with clients."""


class ApiVersionsCall(Struct, frozen=True):
    """The first request of a broker on a connection. ``version`` may be one that is not served."""

    version: int


class ControlledShutdownCall(Struct, frozen=True):
    """A broker's request to move its leaderships before it stops."""

    version: int
    broker_id: int
    broker_epoch: int


class IsrProposal(Struct, frozen=True, gc=False):
    """A leader's new ISR for one partition. ``topic`` is a name (v0, v1) or 16 bytes of topic id (v2, v3)."""

    topic: str | bytes
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool


class AlterPartitionCall(Struct, frozen=True):
    """ISR changes of the partitions that a broker leads (KIP-497)."""

    version: int
    broker_id: int
    broker_epoch: int
    proposals: tuple[IsrProposal, ...]


class AllocateProducerIdsCall(Struct, frozen=True):
    """A broker's request for a block of producer ids (KIP-730)."""

    version: int
    broker_id: int
    broker_epoch: int


Call = ApiVersionsCall | ControlledShutdownCall | AlterPartitionCall | AllocateProducerIdsCall


class Header(Struct, frozen=True):
    """The first fields of every request."""

    api: int
    version: int
    correlation: int

    @property
    def served(self) -> bool:
        """Returns whether the controller listener offers this version."""
        first, last = SERVED.get(self.api, (0, -1))  # type: ignore[call-overload]
        return bool(first <= self.version <= last)


def read_header(reader: Reader) -> Header:
    """Reads API key, version and correlation id."""
    return Header(reader.i16(), reader.i16(), reader.i32())


def read_call(header: Header, reader: Reader) -> Call:
    """Reads the rest of a request whose ``header`` is served, client id included; raises :class:`BadMessage`.

    Bytes behind the request within its frame are ignored, as brokers ignore them.
    """
    flexible = header.api in (Api.ALTER_PARTITION, Api.ALLOCATE_PRODUCER_IDS) or header.version >= 3
    reader.legacy_nullable_string()
    if flexible:
        reader.skip_tags()
    call = _read_body(header, reader)
    if flexible:
        reader.skip_tags()
    return call


def read_caller(reader: Reader) -> tuple[int, int]:
    """Reads broker id and broker epoch at the head of an AlterPartition, and restores the reader's position."""
    start = reader.position
    reader.legacy_nullable_string()
    reader.skip_tags()
    caller = reader.i32(), reader.i64()
    reader.position = start
    return caller


def _read_body(header: Header, reader: Reader) -> Call:
    match header.api:
        case Api.API_VERSIONS:
            return _api_versions(header.version, reader)
        case Api.CONTROLLED_SHUTDOWN:
            return ControlledShutdownCall(header.version, reader.i32(), reader.i64())
        case Api.ALTER_PARTITION:
            return _alter_partition(header.version, reader)
        case Api.ALLOCATE_PRODUCER_IDS:
            return _allocate_producer_ids(header.version, reader)
        case _:
            raise BadMessage(f"API key {header.api} is not served")


def _api_versions(version: int, reader: Reader) -> ApiVersionsCall:
    if version >= 3:
        reader.compact_string()
        reader.compact_string()
    return ApiVersionsCall(version)


def _allocate_producer_ids(version: int, reader: Reader) -> AllocateProducerIdsCall:
    return AllocateProducerIdsCall(version, reader.i32(), reader.i64())


def _alter_partition(version: int, reader: Reader) -> AlterPartitionCall:
    broker, epoch = reader.i32(), reader.i64()
    topics = reader.compact_array(lambda r: _proposals(version, r), 3)
    return AlterPartitionCall(version, broker, epoch, tuple(proposal for topic in topics for proposal in topic))


def _proposals(version: int, reader: Reader) -> list[IsrProposal]:
    topic = reader.uuid() if version >= 2 else reader.compact_string()
    proposals = reader.compact_array(lambda r: _proposal(version, topic, r), 14)
    reader.skip_tags()
    return proposals


def _proposal(version: int, topic: str | bytes, reader: Reader) -> IsrProposal:
    partition, leader_epoch = reader.i32(), reader.i32()
    isr = reader.compact_array(_member if version >= 3 else Reader.i32, 4)
    recovering = _recovery_state(reader) if version >= 1 else False
    partition_epoch = reader.i32()
    reader.skip_tags()
    return IsrProposal(topic, partition, leader_epoch, tuple(isr), partition_epoch, recovering)


def _member(reader: Reader) -> int:
    """Reads the broker id of an ISR member; brokers in ZooKeeper mode always send -1 as its epoch."""
    broker = reader.i32()
    reader.i64()
    reader.skip_tags()
    return broker


def _recovery_state(reader: Reader) -> bool:
    state = reader.i8()
    if state not in (0, 1):
        raise BadMessage(f"leader recovery state {state} is neither 0 (recovered) nor 1 (recovering)")
    return state == 1
