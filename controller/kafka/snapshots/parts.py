"""Reads the model part by part, each in one turn of the loop, while decisions change it in between.

Rows are immutable, so a part is right for its moment. Topics that are created meanwhile come last; a topic that goes
is left out from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from controller.kafka.snapshots.messages import Part, TopicPart
from state_machines.journal.snapshot import PARTITIONS_PER_LINE_MAX, BrokerLine
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Broker

PART_ROWS: Final = 2_000
"""Partitions of a part: some milliseconds of the loop."""


def parts_of(cluster: Cluster, min_isr: MinIsr, rows_max: int = PART_ROWS) -> Iterator[Part]:
    """Yields the partitions; each call of ``next`` reads the model as it is then, at most ``rows_max`` rows of it."""
    index = at = 0
    while index < len(cluster.topics):
        found: list[TopicPart] = []
        room = rows_max
        while room > 0 and index < len(cluster.topics):
            topic = cluster.topics[index]
            present = cluster.topic_index.get(topic.name) == index
            wanted = topic.rows[at : at + min(room, PARTITIONS_PER_LINE_MAX)] if present else ()
            if wanted:
                rows = [cluster.rows[i] for i in wanted]
                deleting = index in cluster.deletions
                found.append(TopicPart(topic.name, topic.topic_id, min_isr.of(topic.name), deleting, rows))
            at += len(wanted)
            room -= len(wanted) or 1
            if not present or at >= len(topic.rows):
                index, at = index + 1, 0
        yield Part(found)


def broker_lines(cluster: Cluster, session_ms: Callable[[Broker], int | None]) -> list[BrokerLine]:
    """Returns the registered brokers, and those that host replicas without being registered."""
    known = cluster.brokers
    lines = [
        BrokerLine(b, True, found.epoch, found.rack, b in cluster.shutting_down, session_ms(found))
        for b, found in sorted(known.items())
    ]
    return lines + [BrokerLine(b, False) for b in sorted(cluster.hosts() - known.keys())]
