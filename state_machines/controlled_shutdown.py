"""Controlled shutdown of a broker (S4-72..S4-74; Kafka ``doControlledShutdown``). Decided after it was observed."""

from __future__ import annotations

from functools import partial

from state_machines import selectors
from state_machines.cluster import Cluster
from state_machines.draft import Draft
from state_machines.partition import PartitionStateMachine
from state_machines.replica import ReplicaStateMachine
from state_machines.types import NO_VERSION, PartitionState

LEAVES = "its broker shuts down"


def controlled_shutdown(draft: Draft, broker: int) -> None:
    """Moves what it leads to other ISR members, stops what it follows; single-replica partitions are left alone."""
    cluster = draft.cluster
    led: list[int] = []
    followed: list[int] = []
    for i in cluster.hosted(broker):
        row = draft.rows[i]
        if row.version != NO_VERSION and len(row.assignment.replicas) > 1:
            (led if row.leader == broker else followed).append(i)
    select = partial(selectors.controlled_shutdown, registered=cluster.brokers, shutting_down=cluster.shutting_down)
    PartitionStateMachine(draft).elect(led, select)
    ReplicaStateMachine(draft).take_offline(broker, followed, LEAVES)


def remaining(cluster: Cluster, broker: int) -> list[int]:
    """What it still leads and could be led elsewhere: the answer of the ControlledShutdown request."""
    return [
        i
        for i, row in enumerate(cluster.rows)
        if row.leader == broker
        and row.state is not PartitionState.NON_EXISTENT
        and broker in row.assignment.replicas
        and len(row.assignment.replicas) > 1
        and row.has_leadership
    ]
