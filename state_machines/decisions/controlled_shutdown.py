"""Controlled shutdown of a broker (S4-72..S4-74; Kafka ``doControlledShutdown``). Decided after it was observed.

Two decisions: clients wait for the new leaders, so these are committed, and told, before the followers.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_VERSION

LEAVES = "a replica's broker shuts down"


def controlled_shutdown(draft: Draft, broker: int) -> None:
    """Both in one decision, where nothing is committed between them."""
    move_leaders(draft, broker)
    stop_followers(draft, broker)


def move_leaders(draft: Draft, broker: int) -> None:
    """Moves what it leads to other ISR members; single-replica partitions are left alone."""
    cluster = draft.cluster
    led = [i for i in _replicated(draft, broker) if draft.rows[i].leader == broker]
    select = partial(selectors.controlled_shutdown, registered=cluster.brokers, shutting_down=cluster.shutting_down)
    PartitionStateMachine(draft).elect(led, selectors.last(select, draft.outranked))


def stop_followers(draft: Draft, broker: int, moved: Collection[int] = ()) -> None:
    """Stops what it follows, but for the rows whose leadership it has just given away."""
    followed = [i for i in _replicated(draft, broker) if draft.rows[i].leader != broker and i not in moved]
    ReplicaStateMachine(draft).take_offline(broker, followed, LEAVES)


def _replicated(draft: Draft, broker: int) -> list[int]:
    rows = draft.rows
    return [
        i
        for i in draft.cluster.hosted(broker)
        if rows[i].version != NO_VERSION and len(rows[i].assignment.replicas) > 1
    ]


def remaining(cluster: Cluster, broker: int) -> list[int]:
    """What it still leads and could be led elsewhere: the answer of the ControlledShutdown request."""
    rows = cluster.rows
    led = [i for i in cluster.hosted(broker) if rows[i].leader == broker]
    return [i for i in led if len(rows[i].assignment.replicas) > 1 and rows[i].has_leadership]
