"""Orders procedures and gives each out with its locks (HBase ``MasterProcedureScheduler``).

Entities have queues, first in first out; queues of a lane take turns; a lane is polled before those behind it. A
procedure is given out together with all its locks. Where another one has a lock, it waits and holds nothing: at the
head of its queue for the entity's own lock, beside the queue for a lock above, a part, or a further entity.

Invariants: no procedure is given out twice without a release between. A procedure that waits for an exclusive lock is
passed by descendants of its holders alone, so it never starves. An entity that no live procedure names has no object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from state_machines.procedures.locks import (
    CLUSTER,
    UPPER,
    Demand,
    EntityQueue,
    Entry,
    LockOrder,
    Locks,
    Part,
    Resource,
    Scope,
)


class LockConflict(Exception):
    """Two records of a store hold locks that exclude each other; the text names them."""


class Scheduler:
    """Gives procedures out in turn. One loop uses it; it runs nothing itself."""

    def __init__(self) -> None:
        self._locks = Locks()
        self._held, self._barriers = self._locks.held, self._locks.barriers
        self._lanes: tuple[deque[EntityQueue], ...] = tuple(deque() for _ in Scope)
        self._resumed: deque[Entry] = deque()
        self._given: set[int] = set()
        """Procedures that were given out to end, and have not ended yet: another request must not give them again."""
        self._part_waiters: dict[Part, list[Entry]] = {}
        self._cluster = EntityQueue(CLUSTER, ())
        self._queues: dict[Resource, EntityQueue] = {CLUSTER: self._cluster}

    # -- live procedures

    def check(self, pid: int, demand: Demand, ancestors: tuple[int, ...]) -> None:
        """Raises :class:`LockOrder` where a demand could end in a deadlock with others or with ``ancestors``."""
        if any(other.resource.scope in UPPER for other in demand.also):
            raise LockOrder(
                f"pid {pid} demands a cluster or namespace besides {demand.resource}: make it the first demand"
            )
        if ancestors:
            self._locks.check_order(pid, demand, ancestors)

    def entry(self, pid: int, demand: Demand, ancestors: tuple[int, ...] = ()) -> Entry:
        """Enters a procedure, which :meth:`drop` removes; raises :class:`LockOrder`."""
        if ancestors or demand.also:
            self.check(pid, demand, ancestors)
        return self.enter(pid, demand, ancestors)

    def enter(self, pid: int, demand: Demand, ancestors: tuple[int, ...]) -> Entry:
        """Enters a procedure whose demand was checked."""
        resource, exclusive, parts, others = demand
        queue = self._queues.get(resource) or self._new(resource)
        queue.users += 1
        if not others:
            return Entry(pid, queue, exclusive, parts, ancestors, (), len(parts) < 2 and not queue.is_upper)
        also = tuple([self.enter(pid, other, ancestors) for other in others])
        return Entry(pid, queue, exclusive, parts, ancestors, also, plain=False)

    def drop(self, entry: Entry) -> None:
        """Removes a procedure that has ended and holds no lock."""
        if self._given:
            self._given.discard(entry.pid)
        for one in (entry, *entry.also) if entry.also else (entry,):
            queue = one.queue
            queue.users -= 1
            if not queue.users:
                self._drop_queue(queue)

    # -- queues

    def add_back(self, entry: Entry) -> None:
        """Queues a procedure behind the others of its entity."""
        queue = entry.queue
        if entry.pid in self._held:
            self._resumed.append(entry)
            return
        if entry.ancestors and self._locks.has_access(entry):
            queue.inner.append(entry)
        else:
            queue.ready.append(entry)
        if not queue.ringed:
            self._ring(queue)

    def add_front(self, entries: Sequence[Entry]) -> None:
        """Queues children and woken procedures before the others of their entities; their own order stays."""
        for entry in reversed(entries):
            if entry.pid in self._held:
                self._resumed.appendleft(entry)
                continue
            queue = entry.queue
            front = queue.inner if entry.ancestors and self._locks.has_access(entry) else queue.ready
            front.appendleft(entry)
            if not queue.ringed:
                self._ring(queue)

    def give(self, entry: Entry) -> None:
        """Gives a procedure out next that only ends, without the locks that it would wait for; once."""
        if entry.pid in self._given:
            return
        self._given.add(entry.pid)
        if entry.pid not in self._held:
            self._leave(entry)
        self._resumed.append(entry)

    def poll(self) -> Entry | None:
        """Returns the next procedure that can run, with its locks; None where there is none or all wait."""
        if self._resumed:
            return self._resumed.popleft()
        for lane in self._lanes:
            while lane:
                queue = lane[0]
                ready = queue.ready
                entry = ready[0] if ready else None
                # the short way of nearly all: one lock, at most one part, and no other procedure near
                if (
                    entry is not None
                    and entry.plain
                    and not (queue.owner or queue.inner or queue.parked or self._barriers)
                    and not (entry.exclusive and queue.shared)
                    and not (entry.parts and entry.parts[0] in queue.parts)
                ):
                    ready.popleft()
                    if entry.exclusive:
                        queue.owner = entry.pid
                    else:
                        queue.shared.add(entry.pid)
                    if entry.parts:
                        queue.parts[entry.parts[0]] = entry.pid
                    entry.inherits = False
                    self._held[entry.pid] = entry
                else:
                    entry = self._take(queue)
                if entry is not None and (ready or queue.inner):
                    lane.rotate(-1)
                else:
                    queue.ringed = False
                    lane.popleft()
                if entry is not None:
                    return entry
        return None

    # -- locks

    def release(self, entry: Entry) -> None:
        """Releases all locks of a procedure that was given out, and queues those that waited for them."""
        queue = entry.queue
        if entry.plain and not (queue.parked or self._barriers or self._part_waiters):
            del self._held[entry.pid]
            if not entry.inherits:
                if entry.exclusive:
                    queue.owner = 0
                else:
                    queue.shared.discard(entry.pid)
            if entry.parts and queue.parts.get(entry.parts[0]) == entry.pid:
                del queue.parts[entry.parts[0]]
            if not queue.ringed and (queue.ready or queue.inner):
                self._ring(queue)
            return
        parts, queues = self._locks.unlock(entry)
        for part in parts:
            self.add_front(self._part_waiters.pop(part, ()))
        for free in queues:
            self._wake(free)
        self._ring_all(up for up in self._barriers if up.wanted)

    def lock(self, entry: Entry) -> bool:
        """Locks the resources of a procedure that is in no queue, where nothing stands in the way."""
        locks, queue = self._locks, entry.queue
        # the short way of nearly all, as in poll: here an ancestor may own the entity's lock
        if (
            entry.plain
            and not self._barriers
            and (queue.owner in entry.ancestors if queue.owner else not (entry.exclusive or queue.parked))
            and not (entry.parts and entry.parts[0] in queue.parts)
        ):
            self._held[entry.pid] = entry
            entry.inherits = queue.owner != 0
            if not entry.inherits:
                queue.shared.add(entry.pid)
            if entry.parts:
                queue.parts[entry.parts[0]] = entry.pid
            return True
        if locks.barrier(entry) is not None or not locks.is_free(entry) or locks.in_the_way(entry) is not None:
            return False
        locks.lock(entry)
        return True

    def restore(self, entry: Entry) -> None:
        """Locks the resources that a record held before a restart, parents first; raises :class:`LockConflict`."""
        if not self.lock(entry):
            raise LockConflict(f"pid {entry.pid} held a lock on {entry.queue.resource} that another record holds, too")

    def holds(self, pid: int) -> bool:
        """Checks whether a procedure holds its locks."""
        return pid in self._held

    def hold_parts(self, pids: Iterable[int]) -> bool:
        """Checks whether one of ``pids`` holds a part of an entity."""
        return any(one.parts for pid in pids if (held := self._held.get(pid)) for one in (held, *held.also))

    @property
    def is_busy(self) -> bool:
        """Checks whether :meth:`poll` may find a procedure."""
        return bool(self._resumed) or any(self._lanes)

    @property
    def holders(self) -> Collection[Entry]:
        """Returns the procedures that hold locks."""
        return self._held.values()

    @property
    def queues(self) -> Collection[EntityQueue]:
        """Returns the entities that live procedures name."""
        return self._queues.values()

    # -- how it works

    def _leave(self, entry: Entry) -> None:
        """Takes a procedure that holds nothing out of whatever queue it waits in."""
        queue = entry.queue
        near = {one.queue for one in (entry, *entry.also)}
        parked_in = [up for one in near for up in (one, *one.above) if entry in up.parked]
        waiting: list[deque[Entry] | list[Entry]] = [self._resumed, queue.ready, queue.inner]
        waiting += (up.parked for up in parked_in)
        waiting += self._part_waiters.values()
        was_first = bool(queue.ready) and queue.ready[0] is entry
        for some in waiting:
            if entry in some:
                some.remove(entry)
        if was_first and queue.wanted:  # no procedure waits any more until no lock below is held
            queue.wanted = False
            del self._barriers[queue]
            self._wake(queue)
        for up in parked_in:  # those behind it may share what it would not; the others wait there again
            self._wake(up)
        self._ring_all((queue,))

    def _new(self, resource: Resource) -> EntityQueue:
        above: tuple[EntityQueue, ...] = (self._cluster,)
        if resource.namespace:
            namespace = Resource(Scope.NAMESPACE, resource.namespace)
            above = (self._queues.get(namespace) or self._new(namespace), self._cluster)
        for up in above:
            up.users += 1
        queue = self._queues[resource] = EntityQueue(resource, above)
        return queue

    def _drop_queue(self, queue: EntityQueue) -> None:
        if queue is not self._cluster:
            del self._queues[queue.resource]
            for up in queue.above:
                up.users -= 1
                if not up.users:
                    self._drop_queue(up)

    def _ring(self, queue: EntityQueue) -> None:
        queue.ringed = True
        self._lanes[queue.resource.scope].append(queue)

    def _ring_all(self, queues: Iterable[EntityQueue]) -> None:
        for queue in queues:
            if not queue.ringed and (queue.ready or queue.inner):
                self._ring(queue)

    def _wake(self, free: EntityQueue) -> None:
        parked, free.parked = free.parked, []
        self.add_front(parked)
        self._ring_all((free,))

    def _take(self, queue: EntityQueue) -> Entry | None:
        """Gives out the first procedure of a queue that gets its locks; None where the queue has to wait."""
        locks = self._locks
        while queue.inner:
            entry = queue.inner.popleft()
            if locks.barrier(entry) is not None or not locks.is_free(entry):
                queue.ready.appendleft(entry)  # its ancestor has released the lock since
            elif self._has_rest(entry):
                return entry
        while queue.ready:
            entry = queue.ready[0]
            up = locks.barrier(entry)
            if up is not None:  # it leaves the queue, because descendants of holders behind it may pass
                up.parked.append(queue.ready.popleft())
                continue
            if not locks.is_free(entry):
                if queue.is_upper and not queue.owner and entry.exclusive:
                    queue.wanted = True
                    self._barriers[queue] = None
                return None
            queue.ready.popleft()
            if self._has_rest(entry):
                return entry
        return None

    def _has_rest(self, entry: Entry) -> bool:
        """Locks everything, or puts the procedure aside until a part or a further entity is free."""
        found = self._locks.in_the_way(entry) if entry.parts or entry.also else None
        if found is None:
            self._locks.lock(entry)
        elif isinstance(found, EntityQueue):
            found.parked.append(entry)
            if entry.queue.wanted:
                entry.queue.wanted = False
                del self._barriers[entry.queue]
                self._wake(entry.queue)
        else:
            self._part_waiters.setdefault(found, []).append(entry)
        return found is None
