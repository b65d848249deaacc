"""Makes a term's first decision (Kafka ``onControllerFailover`` and both machines' startup).

Initial states were placed while loading. The decision elects leaders for New and Offline partitions, and takes brokers
that are gone out of ISRs (KAFKA-3143). The channels' snapshot sends all of it to every broker, not a change per
replica.
"""

from __future__ import annotations

from collections.abc import Iterable

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionState

ABSENT = "a replica's broker was gone when this controller took over"
TAKEN_UP = "it was there before this controller knew of it: its leader goes on with another leader epoch"


def failover(draft: Draft, unclean: Unclean = never_unclean, rows: Iterable[int] | None = None) -> None:
    """Takes replicas on absent brokers out of the ISRs, then elects missing leaders: the replicas come first.

    ``rows``: some of those that :func:`absent_members` returns or that have no leader; None: all of them.
    """
    cluster = draft.cluster
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    rows = range(len(draft.rows)) if rows is None else rows
    for broker, found in sorted(absent_members(cluster, rows).items()):
        replicas.take_offline(broker, found, ABSENT)
    partitions.elect_leaderless(sorted(cluster.leaderless.intersection(rows)), unclean)


def take_up(draft: Draft, rows: Iterable[int], unclean: Unclean = never_unclean) -> None:
    """Decides on partitions with a history that the term meets late: as at its begin, each with another leader epoch.

    A broker may know the leader epoch that was read with another ISR or partition epoch. It would ignore the same
    leader epoch, and its ISR changes would be refused for ever.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    present = [i for i in rows if _may_be_taken_up(draft, i)]
    for broker, found in sorted(absent_members(draft.cluster, present).items()):
        replicas.take_offline(broker, found, ABSENT)
    partitions.elect_leaderless(present, unclean)
    for i in present:
        if not draft.rewritten(i):
            row = draft.row(i)
            draft.renew(i, row.leader, row.isr, TAKEN_UP)


def _may_be_taken_up(draft: Draft, i: int) -> bool:
    row = draft.row(i)
    there = row.has_leadership and row.state is not PartitionState.NON_EXISTENT
    return there and draft.covers(i)


def absent_members(cluster: Cluster, rows: Iterable[int]) -> dict[int, list[int]]:
    """Returns rows by the absent brokers in their ISRs; each distinct ISR is checked once."""
    registered = cluster.brokers
    absent: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[int, list[int]] = {}
    table = cluster.rows
    for i in rows:
        row = table[i]
        isr = row.isr
        gone = absent.get(isr)
        if gone is None:
            gone = absent[isr] = tuple(b for b in isr if b not in registered)
        if gone and row.state is not PartitionState.NON_EXISTENT:
            for broker in gone:
                found.setdefault(broker, []).append(i)
    return found
