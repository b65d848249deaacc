"""Models the cluster: the metadata in ZooKeeper and the registered brokers.

Invariants: The only mutators are the ``observe_*`` methods (facts) and :meth:`Cluster.apply` (committed decisions). The
model is never ahead of ZooKeeper. A row index names one incarnation of a topic's partition and is never reused. Rows
are found by their assignment: there is no index of replicas by broker and no object per replica. A replica's state is
implied by its broker's registration, ``replica_states`` holds the exceptions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from state_machines.model.assigned import Assigned, Isrs
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.model.types import (
    INITIAL_LEADER_EPOCH,
    Broker,
    Leadership,
    PartitionRow,
    PartitionState,
    ReplicaState,
    Topic,
    TopicAssignment,
)

_ONLINE, _NON_EXISTENT = PartitionState.ONLINE, PartitionState.NON_EXISTENT

_DELETED = ReplicaState.DELETION_SUCCESSFUL
_NONE: Final[frozenset[int]] = frozenset()

READ = "read from ZooKeeper"
OFFLINE_SETS_MAX: Final = 65_536
"""Distinct replica sets whose offline members are remembered."""


def leadership_of(row: PartitionRow) -> Leadership | None:
    """Returns the content of the row's state znode, or None where it has none."""
    if not row.has_leadership:
        return None
    return Leadership(row.leader, row.leader_epoch, row.isr, row.controller_epoch, row.version, row.recovering)


class StaleChange(RuntimeError):
    """A change met a row that differs from the one it was decided on: the model may be wrong, so resign."""


class Cluster(Assigned):
    """Brokers, topics and partition rows of one controller term."""

    def __init__(self, epoch: int = 0, *, recovery_state: bool = True, daemons: frozenset[int] = frozenset()) -> None:
        super().__init__()
        self.epoch = epoch
        self.daemons = daemons
        """Ids that are no brokers' and host nothing, although an auto-created topic may name one."""
        self.recovery_state = recovery_state
        self.brokers: dict[int, Broker] = {}
        self.shutting_down: frozenset[int] = frozenset()
        self.live: frozenset[int] = frozenset()
        self.outranked: frozenset[int] = frozenset()
        """Registered brokers that obey a higher controller epoch, and refuse all requests of this one."""
        self.drained: frozenset[int] = frozenset()
        """Brokers that operators have drained: elections choose them last, the automatic balance never."""
        self.cordoned: frozenset[int] = frozenset()
        """Brokers that operators have cordoned: new replicas are placed on others."""
        self.min_isr = UNKNOWN
        """For log lines, operators, and moves of plans, which never go below it: no other decision depends on it."""
        self.replica_states: dict[tuple[int, int], ReplicaState] = {}
        self.leaderless: set[int] = set()
        self._offline: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.deletions: set[int] = set()
        """Topics queued for deletion; once that started their rows are NonExistent."""
        self.failed_dirs: dict[int, frozenset[int]] = {}
        """Brokers whose replica of a row is on a failed log directory."""
        self._isrs = Isrs()

    # -- reading

    @property
    def present(self) -> int:
        """Rows of topics that did not vanish."""
        return len(self.rows) - self.ended

    def offline_replicas(self, i: int) -> tuple[int, ...]:
        """Returns the replicas of a row that are not online, as UpdateMetadata lists them; shutting down is offline."""
        replicas = self.rows[i].assignment.replicas
        if failed := self.failed(i):
            return tuple(r for r in replicas if r not in self.live or r in failed)
        offline = self._offline.get(replicas)
        if offline is None:
            if len(self._offline) >= OFFLINE_SETS_MAX:
                self._offline.clear()
            offline = self._offline[replicas] = tuple(r for r in replicas if r not in self.live)
        return offline

    def replica_state(self, i: int, broker: int) -> ReplicaState:
        """Returns the state of a replica: the exception where there is one, else the implied one."""
        if self.replica_states and (state := self.replica_states.get((i, broker))) is not None:
            return state
        row = self.rows[i]
        deleted = row.state is _NON_EXISTENT
        if broker not in row.assignment.replicas or (deleted and row.topic not in self.deletions):
            return ReplicaState.NON_EXISTENT
        if broker in self.brokers:
            return ReplicaState.OFFLINE if broker in self.failed(i) else ReplicaState.ONLINE
        if not deleted:
            return ReplicaState.OFFLINE
        return _DELETED if (i, broker) in self.given_up else ReplicaState.DELETION_INELIGIBLE

    @property
    def any_stopped(self) -> bool:
        """Checks whether there are exceptions at all."""
        return bool(self.replica_states or self.failed_dirs)

    @property
    def any_failed(self) -> bool:
        """Checks whether a replica is on a failed log directory."""
        return bool(self.failed_dirs)

    def failed(self, i: int) -> frozenset[int]:
        """Returns the brokers whose replica of a row is on a failed log directory."""
        return self.failed_dirs.get(i, _NONE) if self.failed_dirs else _NONE

    def stopped(self, i: int, broker: int) -> bool:
        """Checks whether the replica was sent StopReplica: until it is online again it is sent no LeaderAndIsr."""
        return self.replica_states.get((i, broker)) is ReplicaState.OFFLINE or broker in self.failed(i)

    # -- facts

    def observe_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Enters the registrations; exceptions of absent or returned replicas end, shutting down ends with them."""
        fresh = {b for b, known in self.brokers.items() if b not in brokers or brokers[b].epoch != known.epoch}
        self.brokers = dict(brokers)
        if fresh:
            self.outranked -= fresh
            self.replica_states = {k: s for k, s in self.replica_states.items() if k[1] not in fresh or s is _DELETED}
            self.failed_dirs = {i: left for i, on in self.failed_dirs.items() if (left := on - fresh)}
            self.refusals.end_brokers(fresh)
        self._set_live(self.shutting_down - fresh)
        self._isrs.forget(self.rows)

    def observe_shutting_down(self, broker: int) -> None:
        """Enters a broker's request for controlled shutdown: it stays registered but is not live (never elected)."""
        self._set_live(self.shutting_down | {broker})

    def observe_shutdown_undone(self, broker: int) -> None:
        """Enters that a broker's shutdown was undone: it may lead again."""
        self._set_live(self.shutting_down - {broker})

    def observe_outranked(self, broker: int, epoch: int) -> bool:
        """Enters an incarnation that obeys a higher controller epoch until it accepts a request; whether it is new."""
        known = self.brokers.get(broker)
        if known is None or known.epoch != epoch or broker in self.outranked:
            return False
        self.outranked |= {broker}
        return True

    def observe_accepted(self, broker: int) -> None:
        """Enters that a broker carried out a request."""
        if broker in self.outranked:
            self.outranked -= {broker}

    def observe_cordoned(self, brokers: Collection[int]) -> None:
        """Enters which brokers are marked as cordoned."""
        self.cordoned = frozenset(brokers)

    def observe_drained(self, brokers: Collection[int]) -> None:
        """Enters which brokers are marked as drained."""
        self.drained = frozenset(brokers)

    def observe_min_isr(self, found: MinIsr) -> None:
        """Enters ``min.insync.replicas``."""
        self.min_isr = found

    def observe_failed_dirs(self, broker: int, rows: Iterable[int]) -> list[int]:
        """Enters replicas that are on a failed log directory until their broker starts anew; returns new ones."""
        fresh = [i for i in rows if broker in self.rows[i].assignment.replicas and broker not in self.failed(i)]
        self.failed_dirs.update((i, self.failed(i) | {broker}) for i in fresh)
        return fresh

    def _set_live(self, shutting_down: frozenset[int]) -> None:
        self.shutting_down = shutting_down
        self.live = frozenset(self.brokers) - shutting_down
        self._offline.clear()

    def observe_topic(self, found: TopicAssignment) -> list[int]:
        """Enters a topic, or the partitions that were added to a known one; returns the rows that are new.

        Assignments of known partitions are not changed here: only a reassignment does that. A known id stays too.
        """
        index, topic_id = self.topic_index.get(found.name), found.topic_id
        if index is None:
            index = self.topic_index[found.name] = len(self.topics)
            old: Sequence[int] = ()
            added = sorted(found.partitions)
        else:
            old, topic_id = self.topics[index].rows, self.topics[index].topic_id or topic_id
            added = sorted(found.partitions.keys() - {self.rows[i].partition for i in old})
        start = len(self.rows)
        for i, p in enumerate(added, start):
            placed = self._hosting.placed(found.partitions[p])
            placed.rows.append(i)
            self.rows.append(PartitionRow(index, p, placed.assignment, _NON_EXISTENT))
        fresh = range(start, len(self.rows))
        if self._hosting.any_moving:
            self.reassigning.update((i, a) for i in fresh if (a := self.rows[i].assignment).moving)
        rows = fresh if not old else tuple(sorted((*old, *fresh), key=lambda i: self.rows[i].partition))
        topic = Topic(index, found.name, topic_id, rows, found.version, found.czxid)
        if topic_id is not None:
            self.topic_ids[topic_id] = index
        if index == len(self.topics):
            self.topics.append(topic)
        else:
            self.topics[index] = topic
        return list(fresh)

    def observe_deletions(self, names: Iterable[str]) -> list[int]:
        """Queues topics with a marker for deletion, for good; returns the indexes of new ones."""
        found = [index for name in names if (index := self.topic_index.get(name)) is not None]
        fresh = [index for index in found if index not in self.deletions]
        self.deletions.update(fresh)
        return fresh

    def _is_deleted(self, row: PartitionRow) -> bool:
        return row.state is _NON_EXISTENT and row.topic in self.deletions

    def observe_topic_gone(self, name: str) -> list[int]:
        """Ends a topic whose znode vanished, once :meth:`end_rows` has ended all its rows; returns these."""
        index = self.topic_index.pop(name, None)
        if index is None:
            return []
        self.topic_ids.pop(self.topics[index].topic_id or b"", None)
        rows = list(self.topics[index].rows)
        self.deletions.discard(index)
        self.ended += len(rows)
        return rows

    def end_rows(self, rows: Collection[int]) -> None:
        """Ends rows of a topic whose znode vanished: all of them, or a portion.

        Rows of a topic that was being deleted keep their leadership: brokers may not have been sent yet that it is
        gone.
        """
        for i in rows:
            row = self.rows[i]
            if not self._is_deleted(row):
                self.rows[i] = PartitionRow(row.topic, row.partition, row.assignment, _NON_EXISTENT)
            self.reassigning.pop(i, None)
            self.failed_dirs.pop(i, None)
            for broker in row.assignment.replicas if self.replica_states else ():
                self.replica_states.pop((i, broker), None)
        self.leaderless.difference_update(rows)
        self.refusals.end_rows(rows)
        if self.given_up:
            self.given_up.difference_update((i, broker) for i in rows for broker in self.rows[i].assignment.replicas)

    def load_leadership(self, rows: Iterable[int], found: Iterable[Leadership | None]) -> None:
        """Enters initial states of rows: New without a state znode, Online with a registered leader, else Offline."""
        all_rows, placed, leaderless = self.rows, self._placed, self.leaderless
        for i, leadership in zip(rows, found, strict=True):
            row = all_rows[i] = placed(all_rows[i], leadership)
            if row.state is not _ONLINE:
                leaderless.add(i)

    def observe_leadership(self, i: int, found: Leadership | None) -> Change | None:
        """Enters a state znode as read again; returns the change for all brokers, or None where nothing is new.

        A first state znode counts as new where this term created it and the reply was lost. Any other has a history:
        see :attr:`Change.is_late`.
        """
        before = self.rows[i]
        if found == leadership_of(before) or self._is_deleted(before):
            return None
        self._place(i, found)
        return Change(i, before, self.rows[i], READ, is_new=not before.has_leadership and self._created(self.rows[i]))

    def _created(self, row: PartitionRow) -> bool:
        """Checks whether this term created the state znode, and nothing happened to the partition since."""
        return row.leader_epoch == INITIAL_LEADER_EPOCH and row.controller_epoch == self.epoch

    def observe_undecided(self, rows: Iterable[int]) -> None:
        """Enters states that need no write, of rows whose write was given up.

        Without it a partition would stay Online under a dead leader, or NonExistent with an assignment, and no later
        event would try it again. As at loading: New without a state znode, Online with a registered leader, else
        Offline.
        """
        for i in rows:
            topic = self.topics[self.rows[i].topic]
            if self.topic_index.get(topic.name) == topic.index and not self._is_deleted(self.rows[i]):
                self._place(i, leadership_of(self.rows[i]))

    def _place(self, i: int, found: Leadership | None) -> None:
        row = self._placed(self.rows[i], found)
        if row.state is _ONLINE and row.leader in self.failed(i):
            row = replace(row, state=PartitionState.OFFLINE)
        self.rows[i] = row
        (self.leaderless.discard if row.state is _ONLINE else self.leaderless.add)(i)

    def _placed(self, row: PartitionRow, found: Leadership | None) -> PartitionRow:
        if found is None:
            return PartitionRow(row.topic, row.partition, row.assignment, PartitionState.NEW)
        return PartitionRow(
            row.topic,
            row.partition,
            row.assignment,
            _ONLINE if found.leader in self.brokers else PartitionState.OFFLINE,
            found.leader,
            found.leader_epoch,
            self._isrs.one(found.isr),
            found.controller_epoch,
            found.version,
            found.recovering,
        )

    # -- committed decisions

    def apply(self, changes: Iterable[Change]) -> None:
        """Enters committed changes and moves; raises :class:`StaleChange` where a row is not what was decided on."""
        rows, leaderless = self.rows, self.leaderless
        for change in changes:
            i = change.entity
            if rows[i] is not change.before:
                raise StaleChange(f"{self.name(i)} changed between decision and commit")
            rows[i] = change.after
            if change.after.assignment is not change.before.assignment:
                self._assigned(i, change.before.assignment, change.after)
                self._forget_failed(i)
            if change.after.state is _NON_EXISTENT:
                self.refusals.end_rows((i,))
            if change.after.state is _ONLINE or change.after.state is _NON_EXISTENT:
                leaderless.discard(i)
            else:
                leaderless.add(i)

    def _forget_failed(self, i: int) -> None:
        """Forgets failures of removed replicas: one that comes back has another log."""
        left = self.failed_dirs.pop(i, _NONE).intersection(self.rows[i].assignment.replicas)
        if left:
            self.failed_dirs[i] = left

    def apply_replicas(self, moves: Iterable[ReplicaMove]) -> None:
        """Enters replica moves; a state that is implied anyway is not kept, and Online always is implied."""
        for move in moves:
            key = (move.entity, move.broker)
            self.replica_states.pop(key, None)
            if move.state is ReplicaState.ONLINE or move.broker not in self.brokers:
                continue
            if self.replica_state(*key) is not move.state:
                self.replica_states[key] = move.state

    def intern_isr(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the one tuple of an ISR."""
        return self._isrs.one(isr)
