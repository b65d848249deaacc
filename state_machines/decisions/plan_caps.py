"""Counts what is under way against the caps of a reassign plan: moves and bytes, in all and by receiving broker.

Reassignments of other clients count, too. The bytes of a move count until its end, whatever has been copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

Sizes = Mapping[TopicPartition, int]
"""Bytes of one replica by partition, where known."""


class PlanCaps(Protocol):
    """The caps of a plan; 0 bytes: no cap."""

    @property
    def moves_max(self) -> int:
        """Moves under way in the cluster."""

    @property
    def broker_moves_max(self) -> int:
        """Replicas that one broker receives at a time."""

    @property
    def bytes_max(self) -> int:
        """Bytes of the moves under way in the cluster."""

    @property
    def broker_bytes_max(self) -> int:
        """Bytes of the replicas that one broker receives at a time."""


class Caps:
    """The room that caps leave. A move that is larger than a cap of bytes begins once nothing else is under way."""

    def __init__(self, limits: PlanCaps, cluster: Cluster, sizes: Sizes) -> None:
        self._limits = limits
        self._moving = self._bytes = 0
        self._receiving: Counter[int] = Counter()
        self._receiving_bytes: Counter[int] = Counter()
        for row, written in cluster.reassigning.items():
            if written.kept.moving:
                self.begin(written.kept.adding, sizes.get(cluster.name(row), 0))

    def begin(self, adding: Collection[int], replica_bytes: int, *, further: bool = True) -> None:
        """Counts a move that begins. ``further`` False: it goes on with one that counts already."""
        self._moving += further
        self._bytes += replica_bytes * len(adding)
        for broker in adding:
            self._receiving[broker] += 1
            self._receiving_bytes[broker] += replica_bytes

    def why_full(self, adding: Collection[int], replica_bytes: int) -> str | None:
        """Returns which cap leaves no room for a move, None where all do."""
        limits, added = self._limits, replica_bytes * len(adding)
        if self._moving >= limits.moves_max:
            return f"{self._moving} moves are under way, moves_max is {limits.moves_max}"
        if added and limits.bytes_max and self._bytes and self._bytes + added > limits.bytes_max:
            return f"moves of {self._bytes} bytes are under way, bytes_max is {limits.bytes_max}"
        for broker in adding:
            if self._receiving[broker] >= limits.broker_moves_max:
                count = self._receiving[broker]
                return f"broker {broker} receives {count} replicas, broker_moves_max is {limits.broker_moves_max}"
            under_way = self._receiving_bytes[broker]
            if limits.broker_bytes_max and under_way and under_way + replica_bytes > limits.broker_bytes_max:
                return f"broker {broker} receives {under_way} bytes, broker_bytes_max is {limits.broker_bytes_max}"
        return None


class Sized(Protocol):
    """A move with its bytes."""

    @property
    def topic(self) -> str:
        """Topic."""

    @property
    def partition(self) -> int:
        """Partition."""

    @property
    def replica_bytes(self) -> int:
        """Bytes of one replica."""


def sizes_of(moves: Iterable[Sized], others: Sizes) -> Sizes:
    """Returns the sizes of partitions: those of a plan's moves, and those of other clients' reassignments."""
    known = {TopicPartition(move.topic, move.partition): move.replica_bytes for move in moves if move.replica_bytes}
    return {**others, **known} if others else known
