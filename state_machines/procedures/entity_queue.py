"""Joins the lock of one entity with the queue of the procedures that run on it (HBase ``LockAndQueue``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import msgspec

from state_machines.procedures.demand import UPPER, Resource


class Entry(msgspec.Struct, gc=False, eq=False):
    """A live procedure as the scheduler sees it.

    ``ancestors``: pids of parent, grandparent and so on, whose locks give access. ``also``: its further entities.
    ``plain``: it locks a topic, table or server and at most one part, as nearly all do. ``inherits``: an ancestor owns
    the entity's lock, so that the release leaves it alone.
    """

    pid: int
    queue: EntityQueue
    exclusive: bool
    parts: tuple[Hashable, ...]
    ancestors: tuple[int, ...]
    also: tuple[Entry, ...]
    plain: bool
    inherits: bool = False


class EntityQueue:
    """Queues the procedures of one entity and holds its lock.

    ``inner``: descendants of procedures that hold the lock, which pass all others; ``ready``: the others, first in
    first out. ``owner``: pid of the exclusive lock, 0 without; ``shared``: pids of shared locks; ``parts``: pids by the
    parts that they hold. ``ringed``: the queue is in the ring of its lane. ``is_upper``: other entities are below it.
    ``wanted``: its first procedure waits until no lock below is held. ``parked``: procedures of other queues that wait
    for the lock. ``users``: entries and queues that refer to it.
    """

    __slots__ = (
        "above",
        "inner",
        "is_upper",
        "owner",
        "parked",
        "parts",
        "ready",
        "resource",
        "ringed",
        "shared",
        "users",
        "wanted",
    )

    def __init__(self, resource: Resource, above: tuple[EntityQueue, ...]) -> None:
        self.resource = resource
        self.above = above
        self.inner: deque[Entry] = deque()
        self.ready: deque[Entry] = deque()
        self.owner = 0
        self.shared: set[int] = set()
        self.ringed = False
        self.wanted = False
        self.parked: list[Entry] = []
        self.parts: dict[Hashable, int] = {}
        self.users = 0
        self.is_upper = resource.scope in UPPER

    def is_held_by(self, pids: tuple[int, ...]) -> bool:
        """Checks whether one of ``pids`` holds the lock, shared or exclusive."""
        return self.owner in pids or not self.shared.isdisjoint(pids)
