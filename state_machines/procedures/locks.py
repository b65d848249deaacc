"""Gives procedures shared and exclusive locks: decides what one may lock now, and names what stands in its way.

Invariants: an exclusive lock has one owner, and only its descendants hold locks on the resource and below it. A part
has one owner, whose descendants may use it. Locks are taken all or nothing, so a procedure that waits holds none.
"""

from __future__ import annotations

from collections.abc import Hashable

from state_machines.procedures.demand import Demand, Resource, Scope
from state_machines.procedures.entity_queue import EntityQueue, Entry

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
