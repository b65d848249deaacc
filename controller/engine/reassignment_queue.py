"""What a term has still to do about reassignments: the model says which there are, this what is to be looked at."""

from __future__ import annotations

from controller.engine.event_kinds import EventKind
from metadata_store import paths
from metadata_store.nodes.reassignment_node import Request


class ReassignmentQueue:
    """Row indexes by what they wait for; rows that need it no more by then do no harm."""

    def __init__(self) -> None:
        self.request: Request | None = None
        """``/admin/reassign_partitions`` as it was read, or written by us; every target of it was judged."""
        self.due: set[int] = set()
        """To be decided on: their ISR changed, or a decision on them could not be written."""
        self.again: set[int] = set()
        """To be decided on once more after a while, because something could not be written."""
        self.touched: set[str] = set()
        """Paths of watched state znodes that somebody else changed."""
        self.timers: set[EventKind] = set()
        """Events that are signalled after a while."""
        self.complete: set[int] = set()
        """To be finished once the replicas that go have stopped."""
        self.stopped: set[int] = set()
        """To be finished now."""
        self.name_daemons: set[str] = set()
        """Topics of which running partitions name a daemon as a replica: a broker is to take its place."""
        self.returned: set[int] = set()
        """Brokers that are to be told again to drop replicas, once the role can be confirmed."""
        self.waiting = False
        """Whether rows that were in ``complete`` are being waited for."""

    def touch(self, path: str) -> None:
        """A watch fired."""
        if paths.partition_of_state(path) is not None:
            self.touched.add(path)

    def names(self, topic: str) -> bool:
        """Whether the request still names partitions of a topic."""
        return self.request is not None and any(target.topic == topic for target in self.request.targets)
