"""Defines a controller's requests to a broker as values: LeaderAndIsr, UpdateMetadata, StopReplica."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from brokers.wire.versions import Api
from state_machines.model.types import Broker

Key = tuple[str, int]
"""Topic and partition."""

NO_BROKER_EPOCH: Final = -1
"""Broker epoch that is not compared; the epoch of brokers in a live list, which do not carry one."""


class Head(Struct, frozen=True, gc=False):
    """The first fields of every request to a broker. ``kraft`` is ``isKRaftController`` (False where it has none)."""

    api: Api
    version: int
    correlation: int
    client_id: str | None
    controller_id: int
    kraft: bool
    controller_epoch: int
    broker_epoch: int


class LeaderAndIsrEntry(Struct, frozen=True, gc=False):
    """One partition of a LeaderAndIsr. ``topic_id`` is None below v5 and where it is zero."""

    topic: str
    topic_id: bytes | None
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    recovering: bool = False


class MetadataEntry(Struct, frozen=True, gc=False):
    """One partition of an UpdateMetadata; ``partition_epoch`` is its ``zkVersion``."""

    topic: str
    topic_id: bytes | None
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()


class StopEntry(Struct, frozen=True, gc=False):
    """One partition of a StopReplica; ``leader_epoch`` -1 is not compared, -2 while the topic is being deleted."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class LeaderAndIsr(Struct, frozen=True):
    """A LeaderAndIsr. ``kind`` is its type: 0 below v5 and from every controller in ZooKeeper mode."""

    head: Head
    kind: int
    entries: list[LeaderAndIsrEntry]
    live_leaders: tuple[tuple[int, str, int], ...] = ()


class UpdateMetadata(Struct, frozen=True):
    """An UpdateMetadata. ``topics``: ids by name, of topics without partitions too; ``live``: the whole live list.

    The brokers of ``live`` have no epoch (:data:`NO_BROKER_EPOCH`).
    """

    head: Head
    kind: int
    entries: list[MetadataEntry]
    topics: dict[str, bytes | None]
    live: tuple[Broker, ...]


class StopReplica(Struct, frozen=True):
    """Replicas to stop, and perhaps to delete."""

    head: Head
    entries: list[StopEntry]


Request = LeaderAndIsr | UpdateMetadata | StopReplica
