"""Declares the values that plans are made from: brokers, partitions, sizes and settings of one moment.

Partitions are rows of flat columns, sorted by topic and partition: a million of them cost some megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment
from state_machines.portions import Portions, at_once

MIN_ISR_DEFAULT = 1
"""Kafka's default of ``min.insync.replicas``."""

ROWS_PER_TURN: Final = 5_000
"""Partitions that a view copies in one turn, beside those of the last topic."""

DRAINED: Final = "drained"
"""Begin of the words about a mark that ``undrain`` removes."""


class PlannedBroker(Struct, frozen=True, gc=False):
    """A broker that is registered, or that an assignment names.

    ``live``: registered, and not in its controlled shutdown. ``cordoned``: plans place no further replica on it;
    ``mark``: by whom, since when and why, where that is known.
    """

    id: int
    rack: str | None = None
    live: bool = True
    cordoned: bool = False
    mark: str = ""

    @property
    def may_host(self) -> bool:
        """Checks whether plans may place replicas on it."""
        return self.live and not self.cordoned


class ClusterView(Struct, frozen=True):
    """The cluster as a plan sees it.

    ``topics`` maps names, sorted, to the rows of their partitions, sorted by number. ``partitions`` and
    ``assignments`` are columns by row; an assignment is that of the topic znode. ``sizes``: bytes of one replica by
    topic and partition, where known. ``min_isr``: ``min.insync.replicas`` by topic, where it is not the default of 1.
    ``deleting``: topics that wait for their deletion. ``daemons``: ids of controller daemons; ``brokers`` has none of
    them.
    """

    cluster_id: str
    brokers: dict[int, PlannedBroker]
    topics: dict[str, range]
    partitions: array[int]
    assignments: list[Assignment]
    sizes: Mapping[tuple[str, int], int] = {}
    min_isr: Mapping[str, int] = {}
    deleting: frozenset[str] = frozenset()
    daemons: frozenset[int] = frozenset()

    def find(self, topic: str, partition: int) -> int | None:
        """Returns the row of a partition, or None; in constant time where partition numbers have no holes."""
        rows, numbers = self.topics.get(topic), self.partitions
        if rows is None:
            return None
        if 0 <= partition < len(rows) and numbers[rows.start + partition] == partition:
            return rows.start + partition
        at = bisect_left(numbers, partition, rows.start, rows.stop)
        return at if at < rows.stop and numbers[at] == partition else None

    def is_live(self, broker: int) -> bool:
        """Checks whether a broker is known and live."""
        known = self.brokers.get(broker)
        return known is not None and known.live

    def min_isr_of(self, topic: str) -> int:
        """Returns the topic's ``min.insync.replicas``."""
        return self.min_isr.get(topic, MIN_ISR_DEFAULT)

    def why_no_host(self, broker: int) -> str | None:
        """Returns why no plan may place a replica on a broker, with the remedy; None where it may."""
        if broker in self.daemons:
            return f"{broker} is the id of a controller daemon, which hosts no replica: name a broker"
        known = self.brokers.get(broker)
        if known is None:
            return f"broker {broker} is unknown: correct the id, or start the broker"
        if not known.live:
            return f"broker {broker} is not live: start it, or name another one"
        if not known.cordoned:
            return None
        command = "undrain" if known.mark.startswith(DRAINED) else "uncordon"
        return f"broker {broker} is {known.mark or 'cordoned'}: regent {command} {broker}, or name another one"


def view_of(
    cluster: Cluster,
    cluster_id: str,
    *,
    sizes: Mapping[tuple[str, int], int] | None = None,
    min_isr: Mapping[str, int] | None = None,
    cordoned: Collection[int] = (),
) -> ClusterView:
    """Returns the view of a model; copies two columns, so that the model may change afterwards.

    ``sizes``: bytes of one replica by topic and partition. ``min_isr`` by topic. ``cordoned``: ids of brokers, perhaps
    with their marks in words.
    """
    return at_once(view_in_turns(cluster, cluster_id, sizes=sizes, min_isr=min_isr, cordoned=cordoned))


def view_in_turns(
    cluster: Cluster,
    cluster_id: str,
    *,
    sizes: Mapping[tuple[str, int], int] | None = None,
    min_isr: Mapping[str, int] | None = None,
    cordoned: Collection[int] = (),
    of: Collection[str] | None = None,
) -> Portions[ClusterView]:
    """Makes what :func:`view_of` returns in portions, between which the model may change; each topic is of one moment.

    ``of``: the topics that the view has, all by default. With some of them the loads of brokers are not right.
    """
    topics: dict[str, range] = {}
    partitions: array[int] = array("i")
    assignments: list[Assignment] = []
    rows, written, turn_rows = cluster.rows, cluster.reassigning, 0
    for name in sorted(cluster.topic_index if of is None else set(of)):
        if (index := cluster.topic_index.get(name)) is None:
            continue
        indexes = cluster.topics[index].rows
        topics[name] = range(len(partitions), len(partitions) + len(indexes))
        partitions.extend(rows[i].partition for i in indexes)
        assignments.extend([written.get(i) or rows[i].assignment for i in indexes])
        turn_rows += len(indexes)
        if turn_rows >= ROWS_PER_TURN:
            turn_rows = 0
            yield
    return ClusterView(
        cluster_id,
        _brokers(cluster, cordoned if isinstance(cordoned, Mapping) else dict.fromkeys(cordoned, "")),
        topics,
        partitions,
        assignments,
        {} if sizes is None else sizes,
        {} if min_isr is None else min_isr,
        frozenset(cluster.topics[index].name for index in cluster.deletions),
        cluster.daemons,
    )


def _brokers(cluster: Cluster, cordoned: Mapping[int, str]) -> dict[int, PlannedBroker]:
    """Returns registered brokers, and absent ones that assignments name: their racks are unknown."""
    written = {b for assignment in cluster.reassigning.values() for b in assignment.replicas}
    known = sorted((cluster.brokers.keys() | cluster.hosts() | written) - cluster.daemons)
    racks = {b: broker.rack for b, broker in cluster.brokers.items()}
    return {b: PlannedBroker(b, racks.get(b), b in cluster.live, b in cordoned, cordoned.get(b, "")) for b in known}
