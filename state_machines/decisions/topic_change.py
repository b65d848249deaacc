"""Decides on new topics and partitions, and repairs assignments that brokers made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, PartitionState, TopicAssignment

CREATED = "new partition"

_replicas = attrgetter("replicas")


def new_partitions(draft: Draft, rows: Sequence[int]) -> None:
    """Draws onNewPartitionCreation: partitions New, replicas New, partitions Online, replicas Online.

    Rows that have a state znode by now (another controller's, or regent's own whose reply was lost) are not created
    again.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    fresh = [i for i in rows if draft.rows[i].state is PartitionState.NON_EXISTENT]
    pairs = [(i, broker) for i in fresh for broker in draft.rows[i].assignment.replicas]
    partitions.create(fresh, CREATED)
    replicas.create(pairs, CREATED)
    partitions.elect_leaderless(rows)
    replicas.bring_online(pairs, CREATED)


def names_any(found: TopicAssignment, ids: frozenset[int]) -> bool:
    """Checks whether a topic's assignment names one of ``ids`` (of daemons: they host no replica)."""
    return not ids.isdisjoint(chain.from_iterable(map(_replicas, found.partitions.values())))


def repaired(
    found: TopicAssignment, daemons: Collection[int], live: Collection[int], load: Mapping[int, int]
) -> dict[int, Assignment] | None:
    """Returns partitions with every daemon's id replaced by the least loaded live broker that has no replica yet.

    ``load`` counts replicas per broker. None where there are not enough brokers: the fresh topic cannot exist.
    """
    counts = {broker: load.get(broker, 0) for broker in live}
    result: dict[int, Assignment] = {}
    for partition, assignment in found.partitions.items():
        replicas = list(assignment.replicas)
        for at, broker in enumerate(replicas):
            if broker not in daemons:
                continue
            free = [b for b in counts if b not in replicas]
            if not free:
                return None
            replicas[at] = min(free, key=lambda b: (counts[b], b))
            counts[replicas[at]] += 1
        result[partition] = Assignment(tuple(replicas), assignment.adding, assignment.removing)
    return result


def taken_out(cluster: Cluster, found: TopicAssignment) -> dict[int, Assignment]:
    """Returns what a foreign rewrite took out of the znode of a known topic, as the model has it, by partition.

    Those are whole partitions, which Kafka cannot remove, and the replicas that a reassignment adds and removes.
    Without these the next controller would take all replicas for the target.
    """
    topic = cluster.topic(found.name)
    if topic is None or topic.czxid != found.czxid:
        return {}
    lost: dict[int, Assignment] = {}
    for i in topic.rows:
        row = cluster.rows[i]
        there, written = found.partitions.get(row.partition), cluster.reassigning.get(i, row.assignment)
        if there is None or (written.moving and not there.moving and set(there.replicas) == set(written.replicas)):
            lost[row.partition] = written
    return lost
