"""Implements the replica state machine with Kafka 3.9's deletion states (Kafka ``ReplicaStateMachine``).

A replica on a registered broker is online by implication, one on an absent broker offline. The model holds exceptions
only, so a transition touches nothing but its own rows.
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
    """State machine of a replica. Entities are (row index, broker id)."""

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
        """Returns the state on the draft."""
        return self.draft.replica(*entity)

    def row_of(self, entity: Replica) -> int:
        """Returns the row of the replica's partition."""
        return entity[0]

    def transition(self, entity: Replica, target: ReplicaState) -> Transition:
        """Returns the base's transition, with the broker."""
        return super().transition(entity, target)._replace(broker=entity[1])

    def create(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves NonExistent -> New: sent as a follower where the partition has a leader; refused for the leader."""
        for i, broker in self.movable(replicas, NEW):
            row = self.draft.row(i)
            if row.has_leadership and row.leader == broker:
                self.draft.refuse(i, "NEW", LEADS)
            else:
                led = row.has_leadership
                self.draft.move_replica(ReplicaMove(i, broker, NEW, why, order=led, is_new=led))

    def bring_online(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves New, Online, Offline, Ineligible -> Online: from New nothing is sent, else the leadership."""
        for i, broker in self.movable(replicas, ONLINE):
            order = self.state((i, broker)) is not NEW and self.draft.row(i).has_leadership
            self.draft.move_replica(ReplicaMove(i, broker, ONLINE, why, order=order))

    def take_offline(self, broker: int, rows: Iterable[int], why: str) -> None:
        """Moves New, Online, Offline, Ineligible -> Offline: out of the ISR, stopped where it still runs.

        The last ISR member stays in the ISR; a leader that goes leaves the partition without one. As in Kafka the
        leader epoch moves even where nothing else does, but only if the row is written anyway: a write for it alone is
        saved.
        """
        draft = self.draft
        registered = broker in draft.cluster.brokers
        shrunk: dict[tuple[int, ...], tuple[int, ...]] = {}
        changed: list[int] = []
        for i, _ in self.movable([(i, broker) for i in rows], OFFLINE):
            row = draft.row(i)
            if registered:
                draft.move_replica(ReplicaMove(i, broker, OFFLINE, why, stop=True))
            if row.state is PartitionState.NON_EXISTENT:  # its topic is being deleted, with its state znode
                continue
            changed.append(i)
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
                draft.renew(i, leader, kept, why)
        draft.send_metadata(changed)

    def start_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves Offline -> DeletionStarted: StopReplica with deletion."""
        for i, broker in self.movable(replicas, STARTED):
            self.draft.move_replica(ReplicaMove(i, broker, STARTED, why, stop=True, delete=True))

    def complete_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves DeletionStarted -> DeletionSuccessful."""
        self._mark(replicas, SUCCESSFUL, why)

    def fail_deletion(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves Offline, DeletionStarted -> DeletionIneligible."""
        self._mark(replicas, INELIGIBLE, why)

    def forget(self, replicas: Iterable[Replica], why: str) -> None:
        """Moves DeletionSuccessful -> NonExistent."""
        self._mark(replicas, NON_EXISTENT, why)

    def stop_again(self, i: int, broker: int, why: str) -> None:
        """Draws StopReplica with deletion of a replica whose state stays."""
        self.draft.move_replica(ReplicaMove(i, broker, self.draft.replica(i, broker), why, stop=True, delete=True))

    def send_again(self, i: int, broker: int, why: str, *, is_new: bool) -> None:
        """Draws LeaderAndIsr of a replica whose state stays, as of a new one or not."""
        self.draft.move_replica(ReplicaMove(i, broker, self.draft.replica(i, broker), why, order=True, is_new=is_new))

    def _mark(self, replicas: Iterable[Replica], target: ReplicaState, why: str) -> None:
        for i, broker in self.movable(replicas, target):
            self.draft.move_replica(ReplicaMove(i, broker, target, why))
