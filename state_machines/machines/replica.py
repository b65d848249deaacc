"""The replica state machine (S4-27..S4-38 and Kafka 3.9's deletion states; Kafka ``ReplicaStateMachine``).

A replica on a registered broker is online by implication, one on an absent broker offline; the model holds
exceptions only, so a transition touches nothing but the rows that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable

from state_machines.machines.table import StateMachine
from state_machines.model.decision import ReplicaMove, Transition
from state_machines.model.types import NO_LEADER, PartitionState, ReplicaState

NEW, ONLINE, OFFLINE = ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE
STARTED, SUCCESSFUL = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL
INELIGIBLE, NON_EXISTENT = ReplicaState.DELETION_INELIGIBLE, ReplicaState.NON_EXISTENT

Replica = tuple[int, int]
"""Row index and broker id."""

LEADS = "a new replica cannot be the leader: let another replica lead first"


class ReplicaStateMachine(StateMachine[ReplicaState, Replica]):
    """Life of a replica. Entities are (row index, broker id)."""

    ENTITY = "replica"
    VALID_PREVIOUS = {
        NEW: frozenset({NON_EXISTENT}),
        ONLINE: frozenset({NEW, ONLINE, OFFLINE, INELIGIBLE}),
        OFFLINE: frozenset({NEW, ONLINE, OFFLINE, INELIGIBLE}),
        STARTED: frozenset({OFFLINE}),
        SUCCESSFUL: frozenset({STARTED}),
        INELIGIBLE: frozenset({OFFLINE, STARTED}),
        NON_EXISTENT: frozenset({SUCCESSFUL}),
    }

    def state(self, entity: Replica) -> ReplicaState:
        """State on the draft."""
        return self.draft.replica(*entity)

    def row_of(self, entity: Replica) -> int:
        """The row of the replica's partition."""
        return entity[0]

    def transition(self, entity: Replica, target: ReplicaState) -> Transition:
        """As of the base, with the broker."""
        return super().transition(entity, target)._replace(broker=entity[1])

    def create(self, replicas: Iterable[Replica], why: str) -> None:
        """NonExistent -> New (S4-31): told as a follower where the partition has a leader; refused for the leader."""
        for i, broker in self.movable(replicas, NEW):
            row = self.draft.row(i)
            if row.has_leadership and row.leader == broker:
                self.draft.refuse(i, "NEW", LEADS)
            else:
                told = row.has_leadership
                self.draft.move_replica(ReplicaMove(i, broker, NEW, why, order=told, is_new=told))

    def bring_online(self, replicas: Iterable[Replica], why: str) -> None:
        """New, Online, Offline, Ineligible -> Online: from New nothing is told (S4-32), else the leadership (S4-33)."""
        for i, broker in self.movable(replicas, ONLINE):
            order = self.state((i, broker)) is not NEW and self.draft.row(i).has_leadership
            self.draft.move_replica(ReplicaMove(i, broker, ONLINE, why, order=order))

    def take_offline(self, broker: int, rows: Iterable[int], why: str) -> None:
        """New, Online, Offline, Ineligible -> Offline (S4-34..S4-36): out of the ISR, stopped where it still runs.

        The last ISR member stays in the ISR; a leader that goes leaves the partition without one. Epoch + 1, also
        where only the epoch would move, as in Kafka, if the row is written anyway; such a write of its own is saved.
        """
        draft = self.draft
        registered = broker in draft.cluster.brokers
        shrunk: dict[tuple[int, ...], tuple[int, ...]] = {}
        told: list[int] = []
        for i, _ in self.movable([(i, broker) for i in rows], OFFLINE):
            row = draft.row(i)
            if registered:
                draft.move_replica(ReplicaMove(i, broker, OFFLINE, why, stop=True))
            if row.state is PartitionState.NON_EXISTENT:  # its topic is being deleted, with its state znode
                continue
            told.append(i)
            isr = row.isr
            if not row.has_leadership:
                continue
            if broker not in isr:
                draft.doubt(i)
                continue
            leader = NO_LEADER if row.leader == broker else row.leader
            kept = shrunk.get(isr)
            if kept is None:
                kept = shrunk[isr] = tuple(r for r in isr if r != broker) or isr
            if kept != isr or leader != row.leader or draft.rewritten(i):
                draft.lead(i, leader, kept, why, state=row.state)
        draft.send_metadata(told)

    def start_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """Offline -> DeletionStarted (S4-37): StopReplica with deletion."""
        for i, broker in self.movable(replicas, STARTED):
            self.draft.move_replica(ReplicaMove(i, broker, STARTED, why, stop=True, delete=True))

    def complete_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """DeletionStarted -> DeletionSuccessful."""
        self._mark(replicas, SUCCESSFUL, why)

    def fail_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """Offline, DeletionStarted -> DeletionIneligible."""
        self._mark(replicas, INELIGIBLE, why)

    def forget(self, replicas: Iterable[Replica], why: str) -> None:
        """DeletionSuccessful -> NonExistent."""
        self._mark(replicas, NON_EXISTENT, why)

    def _mark(self, replicas: Iterable[Replica], target: ReplicaState, why: str) -> None:
        for i, broker in self.movable(replicas, target):
            self.draft.move_replica(ReplicaMove(i, broker, target, why))
