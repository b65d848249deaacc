"""Writes a term's part of the journal: the interface of the controller and its handlers.

Every call takes constant time and never waits or raises: the writing thread makes, encodes and writes rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from brokers.outbound.delivery import Delivered
from brokers.wire.errors import error_name
from controller.journal.batches import Batch, Entry, Single
from controller.journal.lines import log_line, log_lines
from controller.journal.moment import Head, Moment
from controller.journal.procedure_rows import Procedural, bounded
from controller.journal.region_items import Item
from controller.journal.region_lines import log_regions, summary
from controller.journal.region_rows import Regional
from controller.journal.report import Report
from state_machines.journal.events import OBSERVED, Kind
from state_machines.model.cluster import READ, Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, PartitionRow, ReplicaState
from state_machines.procedures.record import Caller
from state_machines.procedures.transition import Names, Transition

Sink = Callable[[Entry], None]
"""Takes an entry; must not wait."""

Clock = Callable[[], tuple[int, int]]
"""The wall clock and the monotonic clock, in microseconds."""


class Journals(Protocol):
    """The journals of a daemon's terms."""

    def term(self, ctl_id: int, epoch: int) -> TermJournal:
        """Creates the part of a term that begins."""


def clocks() -> tuple[int, int]:
    """Reads the machine's clocks."""
    return time.time_ns() // 1_000, time.monotonic_ns() // 1_000


class TermJournal:
    """Numbers the rows of one term. Without a sink no row is kept."""

    def __init__(self, sink: Sink | None = None, ctl_id: int = 0, epoch: int = 0, clock: Clock = clocks) -> None:
        self._sink = sink
        self._head = Head("", ctl_id, epoch)
        self._clock = clock
        self._seq = 1
        self._detect_us = 0

    @property
    def kept(self) -> bool:
        """Returns whether a sink keeps the rows."""
        return self._sink is not None

    @property
    def last_seq(self) -> int:
        """Returns the number of the last row; 0 before the first one, and without a sink."""
        return self._seq - 1

    @property
    def cluster_id(self) -> str:
        """Returns the cluster's id; empty where it is not known."""
        return self._head.cluster

    def of_cluster(self, cluster_id: str) -> None:
        """Sets the cluster id of all rows from now on."""
        self._head = Head(cluster_id, self._head.ctl_id, self._head.ctl_epoch)

    def noticed(self, monotonic_s: float) -> None:
        """Sets the time at which the event that is handled from now on was noticed."""
        self._detect_us = int(monotonic_s * 1e6)

    def now_us(self) -> int:
        """Returns the monotonic clock."""
        return self._clock()[1]

    def before(self, cluster: Cluster, moves: Sequence[ReplicaMove]) -> list[ReplicaState]:
        """Returns the replicas' states before their moves enter the model."""
        return [cluster.replica_state(move.entity, move.broker) for move in moves] if self.kept else []

    def decided(
        self,
        cluster: Cluster,
        changes: Sequence[Change],
        moves: Sequence[ReplicaMove],
        before: Sequence[ReplicaState],
        report: Report,
    ) -> None:
        """Records a decision, or a part of it, in the model; ``before`` are the states before the moves."""
        if self._sink is None or not (changes or moves):
            return
        rows = [cluster.rows[move.entity] for move in moves]
        moment, of = self._moment(report.decided_us), (cluster.topics, report.reason, report.why)
        self._put(
            Batch(self._head, self._seq, moment, *of, changes, moves, before, rows, cluster.brokers.keys()),
            self._sink,
        )

    def observed(self, cluster: Cluster, changes: Sequence[Change]) -> None:
        """Records leaderships that were read and that the model did not have."""
        if self._sink is not None and changes:
            moment = self._moment()
            self._put(Batch(self._head, self._seq, moment, cluster.topics, OBSERVED, READ, changes), self._sink)

    def placed(self, cluster: Cluster, before: Iterable[PartitionRow], rows: Iterable[int]) -> None:
        """Records state changes, which need no write, of rows whose write was given up."""
        if self._sink is None:
            return
        pairs = [(i, old, cluster.rows[i]) for i, old in zip(rows, before, strict=True)]
        moved = [Change(i, old, new, READ) for i, old, new in pairs if old.state is not new.state]
        self.observed(cluster, moved)

    def procedures(self, moved: Sequence[Transition], names: Names, domain: str) -> None:
        """Records durable changes of procedures, and has a line of each logged; without a sink it logs them itself."""
        moment, worker = Moment(*self._clock()), f"{domain}-{self._head.ctl_epoch}"
        entry = Procedural(self._head, self._seq, moment, moved, names, worker)
        if self._sink is None:
            log_lines(entry.rows(), worker)
        else:
            self._put(entry, self._sink)

    def regions(self, items: Sequence[Item], count: int, names: Names, *, retains: bool) -> None:
        """Records what happened to regions, as ``count`` rows, and has its lines logged; without a sink it does so."""
        worker = f"regions-{self._head.ctl_epoch}"
        entry = Regional(self._head, self._seq, Moment(*self._clock()), items, count, names, worker, retains)
        if self._sink is not None:
            self._put(entry, self._sink)
            return
        hidden: Counter[str] = Counter()
        log_regions(entry, hidden)
        if hidden:
            log_line(summary(hidden), worker, entry.moment.ts_us)

    def request(self, found: Delivered) -> None:
        """Records a request to a broker that has its response, or was given up."""
        if self._sink is None:
            return
        moment = Moment(*self._clock())
        error = error_name(found.error) if found.error else found.why
        fields: dict[str, object] = {
            "kind": Kind.RPC_BATCH.value,
            "api": found.api.name,
            "partitions": found.partitions,
            "broker": found.broker_id,
            "broker_epoch": found.broker_epoch,
            "t_sent": moment.mono_us - int(found.seconds * 1e6),
            "t_acknowledged": moment.mono_us if found.acknowledged else None,
            "err": bounded(error) if found.acknowledged else f"given up: {bounded(error) or 'no response yet'}",
        }
        self._put(Single(self._head, self._seq, moment, fields), self._sink)

    def call(self, api: str, caller: Caller, *, partitions: int, elected: int, refused: int) -> None:
        """Records a client's call that is no procedure, and what became of it."""
        names = {"principal": bounded(caller.principal), "client": bounded(caller.client)}
        self.event(Kind.CALL, api=api, partitions=partitions, elected=elected, refused=refused, **names)

    def brokers(self, kind: Kind, brokers: Iterable[Broker]) -> None:
        """Records brokers that registered or shut down."""
        for broker in brokers:
            self.event(kind, broker=broker.id, broker_epoch=broker.epoch, rack=broker.rack)

    def given_up(self, topic: str, logs: Mapping[int, Collection[int]], principal: str, reason: str) -> None:
        """Records for each broker that a deletion does not wait for its ``logs`` any more, as an operator requested."""
        for broker, rows in sorted(logs.items()):
            caller = {"principal": bounded(principal), "reason": bounded(reason)}
            self.event(Kind.WAIT_GIVEN_UP, topic=topic, broker=broker, partitions=len(rows), **caller)

    def gone(self, brokers: Iterable[Broker], session_ms: Callable[[Broker], int | None]) -> None:
        """Records brokers whose registrations went. ``session_ms``: time-out of a broker's session, None: unknown."""
        for broker in brokers:
            named = {"broker": broker.id, "broker_epoch": broker.epoch, "rack": broker.rack}
            self.event(Kind.BROKER_DOWN, **named, session_ms=session_ms(broker))

    def snapshot(self, **fields: object) -> None:
        """Records a snapshot of the model, or that there is none; ``fields`` as those of :meth:`event`."""
        if self._sink is not None:
            moment = Moment(*self._clock())
            self._put(Single(self._head, self._seq, moment, {"kind": Kind.SNAPSHOT, **fields}), self._sink)

    def event(self, kind: Kind, **fields: object) -> None:
        """Records one row; ``fields`` are those of :class:`state_machines.journal.events.Row`."""
        if self._sink is not None:
            detect = {"t_detect": self._detect_us} if self._detect_us else {}
            row = Single(self._head, self._seq, self._moment(), {"kind": kind, **detect, **fields})
            self._put(row, self._sink)

    def _moment(self, decide_us: int = 0) -> Moment:
        return Moment(*self._clock(), self._detect_us, decide_us)

    def _put(self, entry: Entry, sink: Sink) -> None:
        self._seq += len(entry)
        sink(entry)
