"""A term's part of the journal, as the controller and its handlers see it.

Every call takes constant time and never waits or raises: rows are made, encoded and written elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from controller.journal.batches import Batch, Entry, Head, Moment, Single
from controller.journal.report import Report
from state_machines.journal.events import OBSERVED, Kind
from state_machines.model.cluster import READ, Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, PartitionRow, ReplicaState

Sink = Callable[[Entry], None]
"""Takes an entry; must not wait."""

Clock = Callable[[], tuple[int, int]]
"""The wall clock and the monotonic clock, in microseconds."""


class Journals(Protocol):
    """Keeps the journals of a daemon's terms."""

    def term(self, ctl_id: int, epoch: int) -> TermJournal:
        """The part of a term that begins."""


def clocks() -> tuple[int, int]:
    """The real ones."""
    return time.time_ns() // 1_000, time.monotonic_ns() // 1_000


class TermJournal:
    """Numbers the rows of one term. Without a sink nothing is kept."""

    def __init__(self, sink: Sink | None = None, ctl_id: int = 0, epoch: int = 0, clock: Clock = clocks) -> None:
        self._sink = sink
        self._head = Head("", ctl_id, epoch)
        self._clock = clock
        self._seq = 1
        self._detect_us = 0

    @property
    def kept(self) -> bool:
        """Whether anybody keeps the rows."""
        return self._sink is not None

    def of_cluster(self, cluster_id: str) -> None:
        """Rows from now on name the cluster."""
        self._head = Head(cluster_id, self._head.ctl_id, self._head.ctl_epoch)

    def noticed(self, monotonic_s: float) -> None:
        """When the event was noticed that is handled from now on."""
        self._detect_us = int(monotonic_s * 1e6)

    def now_us(self) -> int:
        """The monotonic clock."""
        return self._clock()[1]

    def before(self, cluster: Cluster, moves: Sequence[ReplicaMove]) -> list[ReplicaState]:
        """The states that replicas have before their moves are entered."""
        return [cluster.replica_state(move.entity, move.broker) for move in moves] if self.kept else []

    def decided(
        self,
        cluster: Cluster,
        changes: Sequence[Change],
        moves: Sequence[ReplicaMove],
        before: Sequence[ReplicaState],
        report: Report,
    ) -> None:
        """A decision, or a part of it, was entered; ``before`` are the states that the moves began with."""
        if self._sink is None or not (changes or moves):
            return
        rows = [cluster.rows[move.entity] for move in moves]
        moment, of = self._moment(report.decided_us), (cluster.topics, report.reason, report.why)
        self._put(
            Batch(self._head, self._seq, moment, *of, changes, moves, before, rows, cluster.brokers.keys()),
            self._sink,
        )

    def observed(self, cluster: Cluster, changes: Sequence[Change]) -> None:
        """Leaderships were read that the model did not have."""
        if self._sink is not None and changes:
            moment = self._moment()
            self._put(Batch(self._head, self._seq, moment, cluster.topics, OBSERVED, READ, changes), self._sink)

    def placed(self, cluster: Cluster, before: Iterable[PartitionRow], rows: Iterable[int]) -> None:
        """Rows whose write was given up have another state all the same, which needs no write."""
        if self._sink is None:
            return
        pairs = [(i, old, cluster.rows[i]) for i, old in zip(rows, before, strict=True)]
        moved = [Change(i, old, new, READ) for i, old, new in pairs if old.state is not new.state]
        self.observed(cluster, moved)

    def brokers(self, kind: Kind, brokers: Iterable[Broker]) -> None:
        """Brokers came, went, or shut down."""
        for broker in brokers:
            self.event(kind, broker=broker.id, broker_epoch=broker.epoch, rack=broker.rack)

    def event(self, kind: Kind, **fields: object) -> None:
        """One row; ``fields`` are those of :class:`state_machines.journal.events.Row`."""
        if self._sink is not None:
            detect = {"t_detect": self._detect_us} if self._detect_us else {}
            row = Single(self._head, self._seq, self._moment(), {"kind": kind, **detect, **fields})
            self._put(row, self._sink)

    def _moment(self, decide_us: int = 0) -> Moment:
        return Moment(*self._clock(), self._detect_us, decide_us)

    def _put(self, entry: Entry, sink: Sink) -> None:
        self._seq += len(entry)
        sink(entry)
