"""Judges partitions by ``min.insync.replicas``: the values, and the ISR that producers with acks=all need."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from state_machines.model.assigned import Assigned
from state_machines.model.types import PartitionRow, PartitionState


class MinIsr(Struct, frozen=True):
    """Holds ``min.insync.replicas``: the brokers' default (None: not known) and the topics' own values."""

    default: int | None
    topics: Mapping[str, int]

    def of(self, topic: str) -> int | None:
        """Returns the value in force for a topic."""
        return self.topics.get(topic, self.default)

    def after(self, before: MinIsr) -> MinIsr:
        """Returns what is known once this was read after ``before``: a default that no broker sent stays known."""
        return self if self.default is not None or before.default is None else MinIsr(before.default, self.topics)


UNKNOWN: Final = MinIsr(None, {})


def required(row: PartitionRow, min_isr: int) -> int:
    """Returns the replicas in sync without which acks=all fails: never more than there are (Kafka effectiveMinIsr)."""
    return min(min_isr, len(row.assignment.replicas))


def under(row: PartitionRow, min_isr: int | None) -> bool:
    """Checks whether producers with acks=all wait; False while min.insync.replicas is unknown."""
    return min_isr is not None and len(row.isr) < required(row, min_isr)


def at(row: PartitionRow, min_isr: int | None) -> bool:
    """Checks whether one replica less in sync would make producers wait (Kafka isAtMinIsr); False while unknown."""
    return min_isr is not None and len(row.isr) == required(row, min_isr)


def led_but_under(cluster: Assigned, brokers: Collection[int], min_isr: MinIsr) -> int | None:
    """Counts the partitions hosted on ``brokers`` that have a leader, and whose producers with acks=all wait.

    None while min.insync.replicas is unknown. Rows whose ISR is as long as any topic requires cost one comparison.
    """
    if min_isr.default is None:
        return None
    most = max(min_isr.default, *min_isr.topics.values(), 0)
    rows, online = cluster.rows, PartitionState.ONLINE
    short = [row for i in cluster.rows_on(brokers) if len((row := rows[i]).isr) < most and row.state is online]
    return sum(under(row, min_isr.of(cluster.topics[row.topic].name)) for row in short)
