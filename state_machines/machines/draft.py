"""Draws a decision on a read-through overlay of the model.

Invariants: The model itself is never touched. Each drawing of a leadership is one leader epoch, as in Kafka. All
drawings of a row become one write, whose partition epoch is one above the model's. With ``only``, rows outside of
it are neither drawn nor refused (a decision is repeated only for rows that a conflict left unsettled).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from state_machines.model.decision import Change, Decision, Refusal, ReplicaMove, Transition
from state_machines.model.types import (
    INITIAL_LEADER_EPOCH,
    INITIAL_PARTITION_EPOCH,
    LEADER_DURING_DELETE,
    NO_VERSION,
    Assignment,
    PartitionRow,
    PartitionState,
    ReplicaState,
)

if TYPE_CHECKING:
    from state_machines.model.cluster import Cluster

Decide = Callable[["Draft"], None]
"""A decision: draws on the draft. Time, liveness and randomness are arguments bound beforehand."""

_ONLINE = PartitionState.ONLINE
_ENTERED = {state: (state,) for state in PartitionState}


class Draft:
    """The draft that a decide function draws on; :meth:`finish` turns the drawings into a :class:`Decision`."""

    def __init__(self, cluster: Cluster, only: Collection[int] | None = None) -> None:
        self.cluster = cluster
        self.rows = cluster.rows
        self.live = cluster.live
        self.outranked = cluster.outranked
        self.drained = cluster.drained
        self.only = frozenset(only) if only is not None else None
        self.trace: list[Transition] | None = None
        """Set to a list before deciding, it takes the transitions in their order (golden stories, explanations)."""
        self._epoch = cluster.epoch
        self._drawn: dict[int, PartitionRow] = {}
        self._why: dict[int, str] = {}
        self._steps: dict[int, tuple[str, ...]] = {}
        self._single: dict[str, tuple[str, ...]] = {}
        self._states: dict[int, tuple[PartitionState, ...]] = {}
        self._new: set[int] = set()
        self._replicas: dict[tuple[int, int], ReplicaMove] = {}
        self._metadata: dict[int, None] = {}
        self._refusals: list[Refusal] = []
        self._doubted: set[int] = set()

    def covers(self, i: int) -> bool:
        """Checks whether row ``i`` may be drawn."""
        return self.only is None or i in self.only

    def row(self, i: int) -> PartitionRow:
        """Returns the row as drawn so far."""
        return self._drawn.get(i) or self.rows[i]

    def rewritten(self, i: int) -> bool:
        """Checks whether the drawings so far write the row's state znode."""
        return self.row(i).version != self.rows[i].version

    def lead(self, i: int, leader: int, isr: tuple[int, ...], why: str, *, recovering: bool | None = None) -> None:
        """Draws a new leadership of a partition that is Online by it: only its machine knows whether it may be."""
        self._lead(i, _ONLINE, leader, isr, why, recovering)

    def renew(self, i: int, leader: int, isr: tuple[int, ...], why: str) -> None:
        """Draws a new leadership of a partition whose state stays as drawn so far."""
        self._lead(i, None, leader, isr, why, None)

    def _lead(
        self,
        i: int,
        entered: PartitionState | None,
        leader: int,
        isr: tuple[int, ...],
        why: str,
        recovering: bool | None,
    ) -> None:
        """Draws a leadership: leader epoch + 1, or the initial one where there was none."""
        if self.only is not None and i not in self.only:
            return
        before = self.rows[i]
        row = self._drawn.get(i) or before
        state = row.state if entered is None else entered
        created = before.version == NO_VERSION
        self._drawn[i] = PartitionRow(
            row.topic,
            row.partition,
            row.assignment,
            state,
            leader,
            row.leader_epoch + 1 if row.version != NO_VERSION else INITIAL_LEADER_EPOCH,
            isr,
            self._epoch,
            INITIAL_PARTITION_EPOCH if created else before.version + 1,
            row.recovering if recovering is None else recovering,
        )
        self._why[i] = why
        drawn = self._steps.get(i)
        single = self._single.get(why) or self._single.setdefault(why, (why,))
        self._steps[i] = single if drawn is None else drawn + single
        if state is not row.state:
            self._enter(i, state)
        if created:
            self._new.add(i)

    def change_isr(self, i: int, isr: tuple[int, ...], recovering: bool, why: str) -> None:
        """Draws an ISR that the leader requested: the leader epoch stays (AlterPartition)."""
        if not self.covers(i):
            return
        row = self.row(i)
        self._drawn[i] = PartitionRow(
            row.topic,
            row.partition,
            row.assignment,
            row.state,
            row.leader,
            row.leader_epoch,
            isr,
            self._epoch,
            self.rows[i].version + 1,
            recovering,
        )
        self._why[i] = why

    def assign(self, i: int, assignment: Assignment, why: str) -> None:
        """Draws another assignment; the topic znode, written before, makes it safe."""
        row = self.row(i)
        if self.covers(i) and row.assignment != assignment:
            self._drawn[i] = replace(row, assignment=assignment)
            self._why.setdefault(i, why)

    def move(self, i: int, state: PartitionState, why: str) -> None:
        """Draws a state that needs no write, as the machine of partitions allows it.

        The end of a partition without a state znode is sent to brokers, too.
        """
        row = self.row(i)
        if self.covers(i) and row.state is not state:
            unknown = state is PartitionState.NON_EXISTENT and not row.has_leadership
            self._drawn[i] = PartitionRow(
                row.topic,
                row.partition,
                row.assignment,
                state,
                LEADER_DURING_DELETE if unknown else row.leader,
                row.leader_epoch,
                row.isr,
                row.controller_epoch,
                row.version,
                row.recovering,
            )
            self._why.setdefault(i, why)
            self._enter(i, state)

    def _enter(self, i: int, state: PartitionState) -> None:
        """Records a state that was entered; nearly always the first, for which rows share one tuple."""
        entered = self._states.get(i)
        self._states[i] = _ENTERED[state] if entered is None else entered + _ENTERED[state]

    def replica(self, i: int, broker: int) -> ReplicaState:
        """Returns the state of a replica as drawn so far."""
        if self._replicas and (drawn := self._replicas.get((i, broker))) is not None:
            return drawn.state
        return self.cluster.replica_state(i, broker)

    def move_replica(self, move: ReplicaMove) -> None:
        """Draws a replica's state, as the machine of replicas allows it.

        A later move of the same replica continues it and keeps its requests.
        """
        if not self.covers(move.entity):
            return
        key = (move.entity, move.broker)
        earlier = self._replicas.get(key)
        if earlier is not None:
            move = replace(
                move,
                stop=earlier.stop or move.stop,
                delete=earlier.delete or move.delete,
                order=earlier.order or move.order,
                is_new=earlier.is_new or move.is_new,
                passed=(*earlier.passed, earlier.state),
            )
        self._replicas[key] = move

    def send_metadata(self, rows: Iterable[int]) -> None:
        """Draws UpdateMetadata of rows whose offline replicas changed, although nothing is written."""
        self._metadata.update(dict.fromkeys(rows if self.only is None else self.only.intersection(rows)))

    def refuse(self, entity: int, target: str, why: str, *, by_isr: bool = False) -> None:
        """Draws a refusal with its reason; ``by_isr``: another ISR would allow the change."""
        self._refusals.append(Refusal(entity, target, why))
        if by_isr:
            self.doubt(entity)

    def doubt(self, i: int) -> None:
        """Notes a row that another ISR would change: only a write finds out that an ISR is outdated."""
        self._doubted.add(i)

    def finish(self) -> Decision:
        """Returns the decision: one write per row whose partition epoch moved, moves for the rest."""
        writes: list[Change] = []
        moves: list[Change] = []
        rows, why, new, steps, states = self.rows, self._why, self._new, self._steps, self._states
        for i, after in self._drawn.items():
            before = rows[i]
            change = Change(i, before, after, why[i], i in new, steps.get(i, ()), states.get(i, ()))
            (writes if after.version != before.version else moves).append(change)
        metadata = [i for i in self._metadata if i not in self._drawn]
        doubted = self._doubted.difference(change.entity for change in writes) if self._doubted else self._doubted
        return Decision(writes, moves, list(self._replicas.values()), metadata, self._refusals, frozenset(doubted))
