"""Judges whether brokers may stop together, or be removed together, without harm to any partition.

The set is judged as a whole: two brokers that host the only two replicas of a partition may not stop together. Each
partition of the brokers is visited once for each broker, independent of the number of other brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from state_machines.decisions.hindrances import (
    ROWS_PER_TURN,
    Hindrance,
    Judgement,
    RemoveCause,
    StopCause,
    Tally,
)
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr, required
from state_machines.model.types import PartitionRow, PartitionState
from state_machines.portions import Portions, at_once

Found = tuple[tuple[StopCause, tuple[int, ...]], ...]
"""Causes of one partition, each with the brokers to wait for."""
REMEMBERED_MAX: Final = 65_536
"""Distinct combinations of replicas, ISR and min ISR whose causes are remembered within one judgement."""


def can_stop(
    cluster: Cluster, brokers: Collection[int], min_isr: MinIsr, accepted: Collection[StopCause] = ()
) -> Judgement:
    """Judges whether ``brokers`` may stop together; causes that are ``accepted`` hinder nothing."""
    return at_once(stopping(cluster, brokers, min_isr, accepted))


def stopping(
    cluster: Cluster, brokers: Collection[int], min_isr: MinIsr, accepted: Collection[StopCause] = ()
) -> Portions[Judgement]:
    """Judges the same in turns, by the brokers as they were at its begin: a caller repeats it where they changed."""
    judge = StopJudge(cluster, brokers, min_isr, accepted)
    visited: set[int] = set()
    for broker in sorted(cluster.brokers.keys() & set(brokers)):
        yield from judge.judge(broker, visited)
        visited.add(broker)
    named = _named(cluster, brokers)
    hindrances = judge.tally.hindrances(cluster)
    if named.unknown and StopCause.UNKNOWN_BROKER not in accepted:
        hindrances = (*hindrances, Hindrance(StopCause.UNKNOWN_BROKER, len(named.unknown)))
    return Judgement(
        named.brokers, judge.partitions, hindrances, named.unregistered, named.shutting_down, named.unknown
    )


class StopJudge:
    """Judges partitions of brokers that are to stop together; ``tally`` has the causes, ``partitions`` their number."""

    def __init__(
        self, cluster: Cluster, brokers: Collection[int], min_isr: MinIsr, accepted: Collection[StopCause] = ()
    ) -> None:
        self.tally = Tally()
        self.partitions = 0
        self._cluster = cluster
        self._live, self._outranked = cluster.live, cluster.outranked
        self._leaving = frozenset(brokers)
        self._min_isr = min_isr
        self._accepted = frozenset(accepted)
        self._remembered: dict[tuple[tuple[int, ...], tuple[int, ...], int | None], Found] = {}

    def judge(self, broker: int, visited: Collection[int] = ()) -> Portions[None]:
        """Judges the partitions of one broker of the set, without those that are on a ``visited`` one, too."""
        cluster = self._cluster
        for number, i in enumerate(list(cluster.rows_on((broker,))), 1):
            row = cluster.rows[i]
            present = row.state is not PartitionState.NON_EXISTENT and row.topic not in cluster.deletions
            if present and (not visited or not any(r in visited for r in row.assignment.replicas)):
                self.partitions += 1
                for cause, waits_for in self._causes(i, row):
                    if cause not in self._accepted:
                        self.tally.add(cause, i, waits_for)
            if number % ROWS_PER_TURN == 0:
                yield

    def _causes(self, i: int, row: PartitionRow) -> Found:
        cluster = self._cluster
        least = self._min_isr.of(cluster.topics[row.topic].name)
        moving = row.assignment.moving or i in cluster.reassigning
        if moving or row.state is not PartitionState.ONLINE or cluster.failed(i):
            return self._judged(row, least, cluster.failed(i), moving=moving)
        key = row.assignment.replicas, row.isr, least
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[key] = self._judged(row, least, (), moving=False)
        return found

    def _judged(self, row: PartitionRow, least: int | None, failed: Collection[int], *, moving: bool) -> Found:
        live, leaving = self._live, self._leaving
        left = [r for r in row.isr if r in live and r not in leaving and r not in failed]
        others = tuple(r for r in row.assignment.replicas if r not in left and r not in leaving)
        found: list[tuple[StopCause, tuple[int, ...]]] = []
        if row.state is not PartitionState.ONLINE:
            down = tuple(r for r in row.isr if r not in live or r in failed)
            found.append((StopCause.OFFLINE, down))
        if moving:
            found.append((StopCause.REASSIGNING, row.assignment.adding))
        missing = tuple(r for r in row.assignment.origin if r not in row.isr and r not in leaving)
        if row.under_replicated and missing:
            found.append((StopCause.UNDER_REPLICATED, missing))
        if row.state is PartitionState.ONLINE and not leaving.isdisjoint(row.isr):
            cause = self._loss(row, left, least)
            found += [(cause, others)] if cause is not None else []
        return tuple(found)

    def _loss(self, row: PartitionRow, left: Collection[int], least: int | None) -> StopCause | None:
        """Returns the harm of the loss of in-sync replicas, where ``left`` are those that stay."""
        if len(row.assignment.replicas) == 1:
            return StopCause.SINGLE_REPLICA
        if all(r in self._outranked for r in left):
            return StopCause.NO_LEADER
        if least is None:
            return StopCause.MIN_ISR_UNKNOWN
        return StopCause.BELOW_MIN_ISR if len(left) < required(row, least) else None


def can_remove(cluster: Cluster, brokers: Collection[int], controller: int | None = None) -> Judgement:
    """Judges whether nothing is left on ``brokers``: no replica, no target of a reassignment, not the controller.

    ``controller`` is the id in ``/controller``. Partitions of topics that are being deleted count until they are gone.
    """
    return at_once(removing(cluster, brokers, controller))


def removing(cluster: Cluster, brokers: Collection[int], controller: int | None = None) -> Portions[Judgement]:
    """Judges the same in turns."""
    chosen, tally, assigned = frozenset(brokers), Tally(), 0
    visited: set[int] = set()
    for broker in sorted(chosen):
        for number, i in enumerate(list(cluster.rows_on((broker,))), 1):
            row = cluster.rows[i]
            if _exists(cluster, row) and visited.isdisjoint(row.assignment.replicas):
                assigned += 1
                on = chosen.intersection(row.assignment.replicas)
                added = on.intersection(row.assignment.adding)
                if on - added:
                    tally.add(RemoveCause.ASSIGNED, i)
                if added:
                    tally.add(RemoveCause.TARGET, i)
            if number % ROWS_PER_TURN == 0:
                yield
        visited.add(broker)
    for i in _written_targets(cluster, chosen):
        tally.add(RemoveCause.TARGET, i)
    named = _named(cluster, chosen)
    hindrances = tally.hindrances(cluster)
    if controller in chosen:
        hindrances = (*hindrances, Hindrance(RemoveCause.CONTROLLER, 1))
    return Judgement(named.brokers, assigned, hindrances, named.unregistered, named.shutting_down, named.unknown)


def _exists(cluster: Cluster, row: PartitionRow) -> bool:
    return row.state is not PartitionState.NON_EXISTENT or row.topic in cluster.deletions


def _written_targets(cluster: Cluster, brokers: frozenset[int]) -> Iterator[int]:
    """Yields rows on none of the brokers to which a topic znode assigns one: the row follows by a decision."""
    for i, written in list(cluster.reassigning.items()):
        replicas = cluster.rows[i].assignment.replicas
        if not brokers.isdisjoint(written.replicas) and brokers.isdisjoint(replicas):
            yield i


def _named(cluster: Cluster, brokers: Collection[int]) -> Judgement:
    """Returns a judgement that names the brokers by their state, and judges no partition."""
    chosen = tuple(sorted(set(brokers)))
    absent = [b for b in chosen if b not in cluster.brokers]
    hosts = cluster.hosts() if absent else frozenset[int]()
    return Judgement(
        chosen,
        0,
        (),
        unregistered=tuple(b for b in absent if b in hosts),
        shutting_down=tuple(b for b in chosen if b in cluster.shutting_down),
        unknown=tuple(b for b in absent if b not in hosts),
    )
