"""Queues a term's work on reassignments: the model holds them, this queue the rows that need a decision."""

from __future__ import annotations

from controller.engine.event_kinds import EventKind
from metadata_store import paths
from metadata_store.nodes.reassignment_node import Request


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
        self.name_daemons: set[str] = set()
        """Topics whose partitions name a daemon as a replica: a broker is to take its place."""
        self.returned: set[int] = set()
        """Brokers that are sent StopReplica again once the claim is confirmed."""
        self.waiting = False
        """Whether a task waits for rows that were in ``complete``."""

    def touch(self, path: str) -> None:
        """Notes a path whose watch fired."""
        if paths.partition_of_state(path) is not None:
            self.touched.add(path)

    def names(self, topic: str) -> bool:
        """Checks whether the request still names partitions of a topic."""
        return self.request is not None and any(target.topic == topic for target in self.request.targets)
