"""Counts over all partitions of a model, in turns so that a large cluster does not block the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from state_machines.decisions.deletion import replicas_left, waits_for
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr, under
from state_machines.model.types import PartitionRow, PartitionState

TURN_ROWS: Final = 20_000
"""Rows that are counted between two turns of the loop: some milliseconds."""
TURN_DELETED_ROWS: Final = 2_000
"""The same for topics that are being deleted, whose replicas are checked one by one."""
REST_TIMES: Final = 9
"""Pause after a count, as a multiple of its duration: counting takes at most a tenth of the time."""
Least = Callable[[int], int | None]


class Counts:
    """Running counts over rows, without those of vanished topics."""

    __slots__ = ("hosts", "leads", "not_preferred", "under_min_isr", "under_replicated")

    def __init__(self) -> None:
        self.under_replicated = 0
        self.under_min_isr = 0
        self.not_preferred = 0
        self.leads: Counter[int] = Counter()
        self.hosts: Counter[int] = Counter()

    def count(self, rows: Sequence[PartitionRow], least: Least = lambda _: None) -> None:
        """Adds rows. Brokers are counted once per distinct assignment; ``least`` is the min ISR of a topic's index."""
        hosted: Counter[tuple[int, ...]] = Counter()
        gone = PartitionState.NON_EXISTENT
        for row in rows:
            if row.state is gone:
                continue
            replicas = row.assignment.replicas
            hosted[replicas] += 1
            if len(row.isr) < len(replicas):
                self.under_replicated += row.under_replicated
                self.under_min_isr += under(row, least(row.topic))
            if row.version >= 0:
                self.leads[row.leader] += 1
                if row.leader != replicas[0]:
                    self.not_preferred += not row.led_as_preferred
        for replicas, count in hosted.items():
            for broker in replicas:
                self.hosts[broker] += count

    def add(self, other: Counts) -> None:
        """Adds other counts."""
        self.under_replicated += other.under_replicated
        self.under_min_isr += other.under_min_isr
        self.not_preferred += other.not_preferred
        self.leads += other.leads
        self.hosts += other.hosts


class Deletions(NamedTuple):
    """Counts over the topics that are queued for deletion."""

    replicas: int = 0
    ineligible_topics: int = 0
    ineligible_replicas: int = 0
    not_preferred: int = 0

    @classmethod
    def of(cls, cluster: Cluster) -> Deletions:
        """Counts them at once."""
        counting = _Deleted(cluster)
        for batch in _batches(cluster):
            counting.count(batch)
        return counting.found()

    @classmethod
    async def in_turns(cls, cluster: Cluster) -> Deletions:
        """Counts them in turns of some rows, independent of topic sizes."""
        counting = _Deleted(cluster)
        for batch in _batches(cluster):
            counting.count(batch)
            await asyncio.sleep(0)
        return counting.found()


Batch = list[tuple[int, Sequence[int]]]
"""Queued topics with rows of each."""


class _Deleted:
    """Running counts over the topics that are queued for deletion."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._replicas = self._waiting = self._not_preferred = 0
        self._ineligible: set[int] = set()

    def count(self, batch: Batch) -> None:
        """Adds rows."""
        cluster = self._cluster
        rows = [i for _, some in batch for i in some]
        self._replicas += replicas_left(cluster, rows)
        self._waiting += replicas_left(cluster, rows, ineligible=True)
        self._not_preferred += counted([cluster.rows[i] for i in rows]).not_preferred
        self._ineligible.update(topic for topic, some in batch if waits_for(cluster, some) is not None)

    def found(self) -> Deletions:
        """Returns the counts."""
        return Deletions(self._replicas, len(self._ineligible), self._waiting, self._not_preferred)


def _batches(cluster: Cluster) -> Iterator[Batch]:
    """Yields rows of the queued topics in bounded batches; skips a topic that is gone meanwhile."""
    batch, room = Batch(), TURN_DELETED_ROWS
    for topic in [*cluster.deletions]:
        start = 0
        while topic in cluster.deletions and (rows := cluster.topics[topic].rows[start : start + room]):
            batch.append((topic, rows))
            start, room = start + len(rows), room - len(rows)
            if not room:
                yield batch
                batch, room = Batch(), TURN_DELETED_ROWS
    yield batch


class Counted:
    """Counts of the present model: exact at once where it is small, else the last ones that were completed.

    A scrape always takes the last ones (:meth:`seen`), so that it costs the same at every size. A turn's rows are
    counted again only where they differ from those of the last count; identical objects compare fast.
    """

    def __init__(self, min_isr: MinIsr = UNKNOWN) -> None:
        self.min_isr = min_isr
        self._min_isr = min_isr
        self._of: Cluster | None = None
        self._last: Counts | None = None
        self._deletions = Deletions()
        self._turns: list[tuple[list[PartitionRow], Counts]] = []
        self._due_s = 0.0

    def of(self, cluster: Cluster) -> Counts | None:
        """Returns counts of ``cluster``, or None while a large one was not counted yet."""
        if len(cluster.rows) <= TURN_ROWS:
            return counted(cluster.rows, least_of(cluster, self.min_isr))
        return self._last if cluster is self._of else None

    def seen(self, cluster: Cluster) -> tuple[Counts, Deletions]:
        """Returns the last counts of ``cluster``; a small one that was never counted is counted now.

        A large one shows zeros until its first count ends, as before a term.
        """
        if cluster is self._of and self._last is not None:
            return self._last, self._deletions
        if len(cluster.rows) > TURN_ROWS or queued_rows(cluster) > TURN_DELETED_ROWS:
            return Counts(), Deletions()
        return counted(cluster.rows, least_of(cluster, self.min_isr)), Deletions.of(cluster)

    async def refresh(self, cluster: Cluster) -> None:
        """Counts a model in turns; a row that changes meanwhile counts in its old or its new state."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        if cluster is self._of and began_s < self._due_s:
            return
        min_isr = self.min_isr
        known = self._turns if cluster is self._of and min_isr is self._min_isr else []
        least = least_of(cluster, min_isr)
        counts, turns = Counts(), []
        for at, start in enumerate(range(0, len(cluster.rows), TURN_ROWS)):
            rows = cluster.rows[start : start + TURN_ROWS]
            turn = known[at] if at < len(known) and known[at][0] == rows else (rows, counted(rows, least))
            turns.append(turn)
            counts.add(turn[1])
            await asyncio.sleep(0)
        deletions = await Deletions.in_turns(cluster)
        self._of, self._last, self._turns, self._min_isr = cluster, counts, turns, min_isr
        self._deletions = deletions
        self._due_s = now_s() + REST_TIMES * (now_s() - began_s)


def counted(rows: Sequence[PartitionRow], least: Least = lambda _: None) -> Counts:
    """Returns the counts of rows."""
    counts = Counts()
    counts.count(rows, least)
    return counts


def least_of(cluster: Cluster, min_isr: MinIsr) -> Least:
    """Returns the min ISR by the index of a topic."""
    return lambda topic: min_isr.of(cluster.topics[topic].name)


def queued_rows(cluster: Cluster) -> int:
    """Returns the number of partitions of topics that are queued for deletion."""
    return sum(len(cluster.topics[index].rows) for index in cluster.deletions)


def partitions_of(cluster: Cluster) -> int:
    """Returns the number of partitions of present topics."""
    return sum(len(cluster.topics[index].rows) for index in cluster.topic_index.values())


def imbalance(counts: Counts, deletions: Deletions) -> int:
    """Returns Kafka's PreferredReplicaImbalanceCount, which excludes topics that are queued for deletion."""
    return max(0, counts.not_preferred - deletions.not_preferred)
