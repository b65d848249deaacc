"""Encodes partitions and topics inside LeaderAndIsr, UpdateMetadata and StopReplica.

The entries of LeaderAndIsr and UpdateMetadata begin with the same seven fields (the *head*), which depend on the row
alone. They are packed once, with both arrays encoded beforehand; only short tails differ. Bodies are the array of
topics, equal for every broker that gets them; headers are encoded separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct, pack
from typing import Final, NamedTuple

from brokers.wire.primitives import EMPTY_ARRAY, NO_TAGS, ZERO_ID, compact_string, varint
from brokers.wire.versions import Ibp
from state_machines.model.types import LEADER_DURING_DELETE, PartitionRow, PartitionState, Topic

NO_EPOCH: Final = -1
"""Leader epoch in StopReplica that skips the check (``LeaderAndIsr.NoEpoch``)."""
EPOCH_DURING_DELETE: Final = -2
"""Leader epoch in StopReplica of a partition that is being deleted (``LeaderAndIsr.EpochDuringDelete``)."""

NO_TOPIC: Final = -1
"""Stands for the index of no topic."""
SHAPES_MAX: Final = 65_536
"""Most distinct pairs of ISR and replica set whose encoding is kept."""
TAILS_MAX: Final = 4096
"""Most distinct sets of offline replicas whose encoding is kept."""
TOPICS_MAX: Final = 100_000
"""Most topics whose encoding is kept, deleted ones among them: about 20 MB."""

_STOP = Struct(">ii?x").pack


class Heads(NamedTuple):
    """The common part of the heads of rows with one ISR and one replica set: the packer and both encoded arrays.

    ``pack(partition, controller epoch, leader, leader epoch, isr, partition epoch, replicas)`` makes a head.
    """

    pack: Callable[..., bytes]
    isr: bytes
    replicas: bytes


class _Shapes(dict[tuple[tuple[int, ...], tuple[int, ...]], Heads]):
    """:class:`Heads` by ISR and replicas."""

    def __missing__(self, key: tuple[tuple[int, ...], tuple[int, ...]]) -> Heads:
        if len(self) >= SHAPES_MAX:
            self.clear()
        isr, replicas = map(id_array, key)
        heads = self[key] = Heads(Struct(f">iiii{len(isr)}si{len(replicas)}s").pack, isr, replicas)
        return heads


_shapes: Final = _Shapes()


def heads_of(row: PartitionRow) -> Heads:
    """Returns the common part of the heads of rows with the same ISR and replicas."""
    return _shapes[row.isr, row.assignment.replicas]


def head(row: PartitionRow) -> bytes:
    """Encodes partition, controller epoch, leader, leader epoch, ISR, partition epoch, replicas."""
    pack, isr, replicas = _shapes[row.isr, row.assignment.replicas]
    return pack(row.partition, row.controller_epoch, row.leader, row.leader_epoch, isr, row.version, replicas)


def forgotten_head(row: PartitionRow) -> bytes:
    """Encodes the head in UpdateMetadata of a partition that brokers are to forget; Kafka keeps the ISR in it."""
    pack, isr, replicas = _shapes[row.isr, row.assignment.replicas]
    return pack(row.partition, row.controller_epoch, LEADER_DURING_DELETE, 0, isr, 0, replicas)


def id_array(ids: Iterable[int]) -> bytes:
    """Encodes a compact array of int32."""
    found = tuple(ids)
    return varint(len(found) + 1) + pack(f">{len(found)}i", *found)


@lru_cache(TAILS_MAX)
def metadata_tail(offline: tuple[int, ...]) -> bytes:
    """Encodes the tail of an entry in UpdateMetadata."""
    return id_array(offline) + NO_TAGS


class PartitionEncoder:
    """Encodes the version-dependent parts, for the request versions of one IBP."""

    def __init__(self, ibp: Ibp) -> None:
        self._recovery = ibp.leader_and_isr_version >= 6
        self._topics: dict[int, tuple[Topic, bytes]] = {}
        self._topic_ids = ibp.leader_and_isr_version >= 5
        self.plain_tail = self._tail(EMPTY_ARRAY, EMPTY_ARRAY, is_new=False, recovering=False)
        self._plain_new_tail = self._tail(EMPTY_ARRAY, EMPTY_ARRAY, is_new=True, recovering=False)

    def leader_and_isr_tail(self, row: PartitionRow, *, is_new: bool = False) -> bytes:
        """Encodes the tail of an entry in LeaderAndIsr: adding, removing, is new, recovery state."""
        assignment = row.assignment
        if not (assignment.adding or assignment.removing or row.recovering):
            return self._plain_new_tail if is_new else self.plain_tail
        return self._tail(
            id_array(assignment.adding), id_array(assignment.removing), is_new=is_new, recovering=row.recovering
        )

    def _tail(self, adding: bytes, removing: bytes, *, is_new: bool, recovering: bool) -> bytes:
        recovery = bytes((recovering,)) if self._recovery else b""
        return adding + removing + bytes((is_new,)) + recovery + NO_TAGS

    def topic(self, topic: Topic) -> bytes:
        """Encodes the fields before a topic's partitions in LeaderAndIsr and UpdateMetadata; kept per topic."""
        known = self._topics.get(topic.index)
        if known is not None and known[0] is topic:
            return known[1]
        encoded = compact_string(topic.name)
        if self._topic_ids:
            encoded += topic.topic_id or ZERO_ID
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        self._topics[topic.index] = topic, encoded
        return encoded


def stop_entry(row: PartitionRow, *, delete: bool) -> bytes:
    """Encodes one partition of StopReplica; its leader epoch protects new replicas from late requests (KAFKA-9539)."""
    epoch = row.leader_epoch if row.has_leadership else NO_EPOCH
    if row.state is PartitionState.NON_EXISTENT:
        epoch = EPOCH_DURING_DELETE
    return _STOP(row.partition, epoch, delete)


def stop_log_entry(partition: int, leader_epoch: int) -> bytes:
    """Encodes one partition of StopReplica that deletes a log, hosted or not.

    The epoch is never that of a deleted topic: a broker that takes itself for the leader would delete remote segments.
    """
    return _STOP(partition, leader_epoch, True)


def topic_piece(topic: bytes, entries: list[bytes]) -> bytes:
    """Encodes one topic with its partitions."""
    return b"".join((topic, varint(len(entries) + 1), *entries, NO_TAGS))


def body(pieces: list[bytes]) -> bytes:
    """Encodes the array of topics."""
    return varint(len(pieces) + 1) + b"".join(pieces)
