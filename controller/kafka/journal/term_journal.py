"""Writes what happens to partitions, brokers and requests into the journal of a term."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from brokers.outbound.delivery import Delivered
from brokers.wire.errors import error_name
from controller.journal.entries import Single
from controller.journal.moment import Moment
from controller.journal.procedure_rows import bounded
from controller.journal.term_journal import TermJournal
from controller.kafka.journal.batches import Batch
from controller.kafka.journal.report import Report
from state_machines.journal.events import OBSERVED, Kind
from state_machines.model.cluster import READ, Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, ReplicaState


class KafkaJournal(TermJournal):
    """Numbers the rows of one term of a Kafka cluster's controller: the interface of its handlers."""

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
