"""A term's first decision (S4-65..S4-68; Kafka ``onControllerFailover`` and both machines' startup).

Initial states were placed while loading. What is decided: leaders for New and Offline partitions, and the ISRs that
still name brokers which are gone (KAFKA-3143). Telling every broker everything is the channels' snapshot, not a
change per replica.
"""

from __future__ import annotations

from state_machines.draft import Draft
from state_machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.replica import ReplicaStateMachine
from state_machines.types import PartitionState

ABSENT = "its broker was gone when this controller took over"


def failover(draft: Draft, unclean: Unclean = never_unclean) -> None:
    """Takes replicas on absent brokers out of the ISRs, then elects what has no leader: the replicas come first."""
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    for broker, rows in sorted(absent_members(draft).items()):
        replicas.take_offline(broker, rows, ABSENT)
    partitions.elect_leaderless(sorted(draft.cluster.leaderless), unclean)


def absent_members(draft: Draft) -> dict[int, list[int]]:
    """Rows by absent broker that is in their ISR: asked once per distinct ISR."""
    registered = draft.cluster.brokers
    absent: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[int, list[int]] = {}
    for i, row in enumerate(draft.rows):
        isr = row.isr
        gone = absent.get(isr)
        if gone is None:
            gone = absent[isr] = tuple(b for b in isr if b not in registered)
        if gone and row.state is not PartitionState.NON_EXISTENT:
            for broker in gone:
                found.setdefault(broker, []).append(i)
    return found
