"""Gives procedures locks, shared or exclusive: those that one demands, those it has, and what stands in its way.

Invariants: an exclusive lock has one owner, and only its descendants hold locks on the resource and below it. A part
has one owner, whose descendants may use it. Locks are taken all or nothing, so a procedure that waits holds none.

Servers are beside namespaces, below the cluster. A lock implies a shared lock on everything above its resource.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec


class Scope(IntEnum):
    """Kinds of resources that have a queue. The value is the lane: a lower one is polled first."""

    CLUSTER = 0
    SYSTEM = 1
    """Topics or tables that others depend on, such as the catalog."""
    SERVER = 2
    NAMESPACE = 3
    TOPIC = 4
    TABLE = 5


class Resource(NamedTuple):
    """Names an entity. ``namespace``: of a topic or table, empty where there is none."""

    scope: Scope
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.scope.name.lower(), self.namespace, self.name)))


class Demand(NamedTuple):
    """Describes the locks of a procedure while it runs, all or nothing.

    ``resource``: its queue, locked ``exclusive`` or shared. ``parts``: its partitions or regions, each of them locked
    exclusively. ``also``: demands on further topics, tables or servers, which have no further ones themselves.
    """

    resource: Resource
    exclusive: bool
    parts: tuple[Hashable, ...] = ()
    also: tuple[Demand, ...] = ()


UPPER: Final = frozenset({Scope.CLUSTER, Scope.NAMESPACE})
"""Scopes of resources that others are below."""
CLUSTER: Final = Resource(Scope.CLUSTER)


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


Part = tuple[EntityQueue, Hashable]
"""A part of an entity."""


class LockOrder(Exception):
    """A demand that could end in a deadlock; the text names the locks."""


class Locks:
    """Holds the locks of all procedures.

    ``held``: entries that hold their locks, by pid. ``barriers``: upper entities whose
    exclusive lock is held, or waited for: all that is below them takes the long way.
    """

    def __init__(self) -> None:
        self.held: dict[int, Entry] = {}
        self.barriers: dict[EntityQueue, None] = {}

    def check_order(self, pid: int, demand: Demand, ancestors: tuple[int, ...]) -> None:
        """Raises :class:`LockOrder` where a child demands a lock before one that its ancestors hold, parent first.

        They hold theirs until it has ended, so its own come after all of theirs: in the order of resources, and parts
        behind their resource. Below an ancestor's exclusive lock only the locks of ancestors in between count. A lock
        that an ancestor has from its own ancestor keeps no sibling of it out, so the order counts there.
        """
        for one in (demand, *demand.also):
            rank = (one.resource, 1) if not self._owned(one.resource, ancestors).issuperset(one.parts) else None
            shared = False
            for ancestor in ancestors:
                if (held := self.held.get(ancestor)) is None:
                    continue
                locks = (held, *held.also)
                if any(_owns(lock) and _covers(lock.queue.resource, one.resource) for lock in locks):
                    break
                shared |= not one.exclusive and any(lock.queue.resource == one.resource for lock in locks)
                last = max((lock.queue.resource, 1 if lock.parts else 0) for lock in locks)
                if (not shared and (one.resource, 0) <= last) or (rank is not None and rank <= last):
                    raise LockOrder(f"pid {pid} demands {one.resource} after its ancestor {ancestor} locked {last[0]}")

    def _owned(self, resource: Resource, pids: tuple[int, ...]) -> set[Hashable]:
        """Returns the parts of a resource that ``pids`` hold."""
        held = [one for pid in pids if (entry := self.held.get(pid)) is not None for one in (entry, *entry.also)]
        return {part for one in held if one.queue.resource == resource for part in one.parts}

    def has_access(self, entry: Entry) -> bool:
        """Checks whether an ancestor holds the entity's lock, or an exclusive one above it."""
        queue, ancestors = entry.queue, entry.ancestors
        return queue.is_held_by(ancestors) or any(up.owner in ancestors for up in queue.above)

    def barrier(self, entry: Entry, own: EntityQueue | None = None) -> EntityQueue | None:
        """Returns the entity above whose exclusive lock keeps the procedure out; ``own``: one that it waits for itself.

        A procedure that waits for such a lock is passed by descendants of holders alone: it waits for those.
        """
        if self.barriers:
            for up in entry.queue.above:
                if up is own:
                    continue
                if up.owner:
                    if up.owner not in entry.ancestors:
                        return up
                elif up.wanted and self.held.keys().isdisjoint(entry.ancestors):
                    return up
        return None

    def is_free(self, entry: Entry) -> bool:
        """Checks whether the entity's own lock can be had, or is an ancestor's."""
        queue, ancestors = entry.queue, entry.ancestors
        if queue.owner:
            return queue.owner in ancestors
        if queue.parked and not queue.is_upper and not queue.is_held_by(ancestors):
            return False  # those that came before wait for a lock that is held, and are queued once it is free
        if not entry.exclusive:
            return True
        if queue.shared and not queue.shared.issubset(ancestors):
            return False
        return not queue.is_upper or self._is_free_below(queue, ancestors)

    def _is_free_below(self, queue: EntityQueue, ancestors: tuple[int, ...]) -> bool:
        return not any(
            queue in one.queue.above
            for pid, held in self.held.items()
            if pid not in ancestors
            for one in (held, *held.also)
        )

    def in_the_way(self, entry: Entry) -> EntityQueue | Part | None:
        """Returns the first part or further entity that the procedure has to wait for."""
        for one in (entry, *entry.also):
            for part in one.parts:
                if one.queue.parts.get(part, 0) not in (0, *entry.ancestors):
                    return one.queue, part
        for other in entry.also:
            up = self.barrier(other, entry.queue)
            if up is not None:
                return up
            if not self.is_free(other):
                return other.queue
        return None

    def lock(self, entry: Entry) -> None:
        """Takes all locks of a procedure that nothing stands in the way of."""
        pid = entry.pid
        self.held[pid] = entry
        for one in (entry, *entry.also):
            queue = one.queue
            one.inherits = queue.owner != 0
            if one.exclusive and not one.inherits:
                queue.owner = pid
                queue.wanted = False
                if queue.is_upper:
                    self.barriers[queue] = None
            elif not one.inherits:
                queue.shared.add(pid)
            for part in one.parts:
                queue.parts.setdefault(part, pid)

    def unlock(self, entry: Entry) -> tuple[list[Part], list[EntityQueue]]:
        """Releases all locks of a procedure; returns the parts and entities that others may get now."""
        pid = entry.pid
        del self.held[pid]
        parts, queues = [], []
        for one in (entry, *entry.also):
            queue = one.queue
            for part in one.parts:
                if queue.parts.get(part) == pid:
                    del queue.parts[part]
                    parts.append((queue, part))
            if one.inherits:
                continue
            if one.exclusive:
                queue.owner = 0
                self.barriers.pop(queue, None)
            else:
                queue.shared.discard(pid)
            queues.append(queue)
        return parts, queues


def _owns(held: Entry) -> bool:
    """Checks whether an exclusive lock is the procedure's own, and not one of its ancestor."""
    return held.exclusive and not held.inherits


def _covers(upper: Resource, resource: Resource) -> bool:
    return (
        upper == resource
        or upper.scope is Scope.CLUSTER
        or (upper.scope is Scope.NAMESPACE and upper.name == resource.namespace)
    )
