"""Words what deletions wait for, and what ends the wait. It is pure: values in, text out."""

from __future__ import annotations

from controller.process.wording import named
from state_machines.decisions.deletion import MOVES, awaited
from state_machines.model.cluster import Cluster
from state_machines.model.types import ReplicaState


def deletion_of_row(cluster: Cluster, i: int) -> str:
    """Returns what the deletion of a partition of a topic that is being deleted waits for."""
    row = cluster.rows[i]
    brokers, why = reason_of(cluster, row.topic)
    if brokers or why:
        return f"the deletion of its topic waits: {why}"
    state = cluster.replica_state
    left = [b for b in row.assignment.replicas if state(i, b) is not ReplicaState.DELETION_SUCCESSFUL]
    if left:
        return f"brokers {named(left)} have still to delete its logs: that needs no help while they respond"
    return "its logs are deleted; its znodes go with the last partition of its topic"


def reason_of(cluster: Cluster, index: int) -> tuple[list[int], str]:
    """Returns the brokers that a deletion waits for, and what ends the wait."""
    topic = cluster.topics[index]
    brokers = awaited(cluster, topic.rows)
    gone, here = [b for b in brokers if b not in cluster.brokers], [b for b in brokers if b in cluster.brokers]
    parts: list[str] = []
    if gone:
        options = " ".join(f"--broker {broker}" for broker in gone)
        parts.append(
            f"{_brokers(gone)} not registered: start {_them(gone)}; only if {_them(gone, 'it', 'they')} never "
            f"{_them(gone, 'returns', 'return')}: regent deletions give-up {topic.name} {options}"
        )
    if here:
        parts.append(f"{_brokers(here)} registered and refused to delete logs: see the log there, then restart it")
    if not brokers and cluster.reassigning and any(map(cluster.is_moving, topic.rows)):
        parts.append(MOVES)
    return brokers, "; ".join(parts)


def _brokers(ids: list[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {named(ids)} are"


def _them(ids: list[int], one: str = "it", many: str = "them") -> str:
    return one if len(ids) == 1 else many
