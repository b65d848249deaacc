"""Writes what happens to partitions, brokers and requests into the journal of a term.

:func:`record` is the one table of what a fact writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from brokers.outbound.delivery import Delivered
from brokers.wire.errors import error_name
from controller.journal.entries import Entry, Moment, Single
from controller.journal.term_journal import TermJournal, bounded
from controller.kafka.journal.report import Report
from metadata_store.codecs.topic import topic_id_text
from state_machines.journal.audit import BY_LEADER, STRATEGIES
from state_machines.journal.events import OBSERVED, SCHEMA_VERSION, Kind, Row
from state_machines.machines import selectors
from state_machines.model import facts, topic_facts
from state_machines.model.cluster import READ, Cluster
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.facts import Entered, Fact
from state_machines.model.types import Broker, PartitionRow, PartitionState, ReplicaState, Topic

_PARTITION_STATES: Final = {state: state.name for state in PartitionState}
_LEADER, _ISR, _STATE = Kind.LEADER.value, Kind.ISR.value, Kind.PARTITION_STATE.value


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


def record(
    journal: KafkaJournal, cluster: Cluster, fact: Fact, entered: Entered, session_ms: Callable[[Broker], int | None]
) -> None:
    """Records a fact that is in the model; most facts have no row.

    ``session_ms``: time-out of a broker's session, None: unknown.
    """
    match fact:
        case topic_facts.StatesRead() | topic_facts.WritesGivenUp():
            journal.observed(cluster, entered.changes)
        case topic_facts.TopicRead():
            for _ in entered.topics if not fact.loaded else ():
                journal.event(Kind.TOPIC_CREATE, topic=fact.topic.name)
        case topic_facts.TopicGone():
            journal.event(Kind.TOPIC_DELETE, topic=fact.topic)
        case facts.BrokersRead():
            journal.gone(entered.gone, session_ms)
            journal.brokers(Kind.BROKER_UP, entered.back)
        case facts.BrokersUp() | facts.ShutdownUndone():
            journal.brokers(Kind.BROKER_UP, entered.back)
        case facts.ShutdownRequested():
            journal.brokers(Kind.BROKER_SHUTDOWN_BEGIN, [fact.broker])
        case facts.ShutdownEnded():
            journal.brokers(Kind.BROKER_SHUTDOWN_END, [fact.broker])
        case topic_facts.WaitsGivenUp():
            journal.given_up(fact.topic, fact.logs, fact.principal, fact.reason)
        case _:
            pass


# -- rows of changes of partitions


class Batch(Entry, frozen=True):
    """Changes and moves that entered the model together. ``before`` and ``moved_rows`` belong to ``moves``, one each.

    They are queued in constant time, and their rows are made later: they are immutable, so the writing thread can read
    them. ``registered`` are the brokers at that time.
    """

    topics: Sequence[Topic]
    reason: str
    why: str
    changes: Sequence[Change]
    moves: Sequence[ReplicaMove] = ()
    before: Sequence[ReplicaState] = ()
    moved_rows: Sequence[PartitionRow] = ()
    registered: Collection[int] = ()

    def __len__(self) -> int:
        return len(self.changes) + len(self.moves)

    def rows(self) -> Iterator[Row]:
        """Yields the rows of changes, and then those of moves."""
        yield from _changes(self)
        yield from _moves(self)


def _changes(batch: Batch) -> Iterator[Row]:
    """Yields rows of changes, in one loop with positional fields: a broker's death makes thousands."""
    head, moment, topics, reason = batch.head, batch.moment, batch.topics, batch.reason
    cluster, ctl_id, epoch, ts_us, mono_us = head.cluster, head.ctl_id, head.ctl_epoch, moment.ts_us, moment.mono_us
    detect, decide = moment.detect_us or None, moment.decide_us or None
    names: dict[int, tuple[str, str | None]] = {}
    states = _PARTITION_STATES
    for seq, change in enumerate(batch.changes, batch.seq):
        before, after = change.before, change.after
        named = names.get(after.topic)
        if named is None:
            named = names[after.topic] = _named(topics[after.topic])
        old, new = before.version != -1, after.version != -1
        assignment, steps, read = after.assignment, change.steps, change.why == READ
        strategy = _strategy(steps) if steps else None
        absent = [r for r in after.isr if r not in batch.registered] if strategy is not None else None
        kind = _STATE if before.version == after.version else _ISR if before.leader == after.leader and old else _LEADER
        yield Row(
            SCHEMA_VERSION,
            cluster,
            ctl_id,
            epoch,
            seq,
            ts_us,
            mono_us,
            kind,
            named[0],
            after.partition,
            named[1],
            states[before.state],
            states[after.state],
            before.leader if old else None,
            after.leader if new else None,
            before.leader_epoch if old else None,
            after.leader_epoch if new else None,
            before.version if old else None,
            after.version if new else None,
            before.isr if old else None,
            after.isr if new else None,
            assignment.replicas,
            assignment.adding or None,
            assignment.removing or None,
            _read_reason(before, after) if read else reason,
            strategy,
            None if selectors.UNCLEAN.isdisjoint(steps) else True,
            steps or None,
            [states[s] for s in change.states] if len(change.states) > 1 else None,
            detect,
            decide,
            None if read else mono_us,
            batch.why,
            absent=absent or None,
        )


def _read_reason(before: PartitionRow, after: PartitionRow) -> str:
    """Attributes an ISR that changed under the same leader and leader epoch to the leader: no controller does that."""
    same = before.leader == after.leader and before.leader_epoch == after.leader_epoch
    return BY_LEADER if same and before.has_leadership and before.version != after.version else OBSERVED


def _named(topic: Topic) -> tuple[str, str | None]:
    return topic.name, topic_id_text(topic.topic_id) if topic.topic_id is not None else None


def _strategy(steps: Sequence[str]) -> str | None:
    """Returns the strategy of the last election among the steps."""
    return next((found for step in reversed(steps) if (found := STRATEGIES.get(step)) is not None), None)


def _moves(batch: Batch) -> Iterator[Row]:
    head, moment = batch.head, batch.moment
    first = batch.seq + len(batch.changes)
    for at, (move, before, row) in enumerate(zip(batch.moves, batch.before, batch.moved_rows, strict=True)):
        yield Row(
            SCHEMA_VERSION,
            head.cluster,
            head.ctl_id,
            head.ctl_epoch,
            first + at,
            moment.ts_us,
            moment.mono_us,
            Kind.REPLICA_STATE.value,
            batch.topics[row.topic].name,
            row.partition,
            from_state=before.name,
            to_state=move.state.name,
            reason=batch.reason,
            states=[state.name for state in (*move.passed, move.state)] if move.passed else None,
            why=move.why,
            broker=move.broker,
        )
