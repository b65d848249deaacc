"""Makes rows of changes of partitions: a batch is queued in constant time, its rows are made later.

Batches hold the applied changes themselves: these are immutable, so the writing thread can read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from controller.journal.entries import Entry
from metadata_store.codecs.topic import topic_id_text
from state_machines.journal.audit import BY_LEADER, STRATEGIES
from state_machines.journal.events import OBSERVED, SCHEMA_VERSION, Kind, Row
from state_machines.machines import selectors
from state_machines.model.cluster import READ
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import PartitionRow, PartitionState, ReplicaState, Topic

_PARTITION_STATES: Final = {state: state.name for state in PartitionState}
_LEADER, _ISR, _STATE = Kind.LEADER.value, Kind.ISR.value, Kind.PARTITION_STATE.value


class Batch(Entry, frozen=True):
    """Changes and moves that entered the model together. ``before`` and ``moved_rows`` belong to ``moves``, one each.

    ``registered`` are the brokers at that time.
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
