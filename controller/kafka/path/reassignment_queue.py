"""Queues a term's work on reassignments: the model holds them, this queue the rows that need a decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from brokers.outbound.delivery import BrokerResponse
from controller.kafka.path.event_kinds import EventKind
from metadata_store.nodes.reassignment_node import Request
from state_machines.decisions.reassignment import leaves
from state_machines.model.cluster import Cluster


class ReassignmentQueue:
    """Sorts row indexes by what they wait for; a row that no longer needs it does no harm."""

    def __init__(self) -> None:
        self.request: Request | None = None
        """``/admin/reassign_partitions`` as it was read, or written by us; every target of it was judged."""
        self.due: set[int] = set()
        """Rows to decide on: their ISR changed, or a decision on them could not be written."""
        self.again: set[int] = set()
        """Rows to decide on again after a while, because a write failed."""
        self.touched: set[str] = set()
        """Paths of watched state znodes that another client changed."""
        self.timers: set[EventKind] = set()
        """Events whose timers run."""
        self.complete: set[int] = set()
        """Rows to finish once the removed replicas have stopped."""
        self.to_drop: set[int] = set()
        """Rows whose removed replicas are on returned brokers, which are still to be sent StopReplica again."""
        self.stopped: set[int] = set()
        """Rows to finish now."""
        self.acknowledged: set[tuple[int, int]] = set()
        """Rows, with brokers that acknowledged that their removed replica is deleted."""
        self.name_daemons: set[str] = set()
        """Topics whose partitions name a daemon as a replica: a broker is to take its place."""
        self.returned: set[int] = set()
        """Brokers that are sent StopReplica again once the claim is confirmed."""
        self.waiting = False
        """Whether a task waits for rows that were in ``complete``."""

    def answered(self, cluster: Cluster, answer: BrokerResponse) -> None:
        """Notes the removed replicas whose deletion a broker acknowledged, of rows that are to be finished."""
        if answer.error or not cluster.reassigning or not isinstance(answer.rows, Mapping):
            return
        failed = {i for i, _ in answer.failed}
        for i, delete in answer.rows.items():
            if delete and i not in failed and answer.broker_id in leaves(cluster, i):
                self.acknowledged.add((i, answer.broker_id))

    def unacknowledged(self, cluster: Cluster, i: int) -> tuple[int, ...]:
        """Returns the brokers that did not acknowledge the deletion of their removed replica of a row."""
        return tuple(broker for broker in leaves(cluster, i) if (i, broker) not in self.acknowledged)

    def left(self, cluster: Cluster) -> None:
        """Drops acknowledgements of rows that are finished, or whose replicas changed again."""
        self.acknowledged = {(i, broker) for i, broker in self.acknowledged if broker in leaves(cluster, i)}

    def retargeted(self, rows: Collection[int]) -> None:
        """Drops acknowledgements of rows with new targets: a replica may come back, and be removed once more."""
        self.acknowledged = {(i, broker) for i, broker in self.acknowledged if i not in rows}

    def names(self, topic: str) -> bool:
        """Checks whether the request still names partitions of a topic."""
        return self.request is not None and any(target.topic == topic for target in self.request.targets)
