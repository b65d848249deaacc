"""Keeps the work of a term on deletions and reassignments between two events: the model holds their states.

A queued topic (``Cluster.deletions``) is in one of these places: ``waiting`` before brokers are sent StopReplica,
``under_way`` while a replica's broker has not responded, ``ended`` once all logs are deleted and only znodes are left.
It is in none while it waits for a broker or a reassignment (:func:`state_machines.decisions.deletion.ineligible`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from brokers.outbound.delivery import BrokerResponse
from controller.kafka.path.events import EventKind, EventQueue
from metadata_store.nodes.reassignment_node import Request
from state_machines.decisions.deletion import MOVES, WAITS, all_deleted, any_waits, waits_for
from state_machines.decisions.reassignment import leaves
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionState, Topic

PARTITIONS_MAX: Final = 20_000
"""Partitions of topics whose deletion is under way; a topic that has more is alone."""
TURN_PARTITIONS: Final = 2_000
"""Partitions at which no further topic is decided on in the same turn of the loop: some tens of milliseconds."""
PART_ROWS: Final = 10_000
"""Partitions of one topic whose replicas are looked at in one turn of the loop."""


class DeletionQueue:
    """Sorts the topics in deletion by what they wait for. ``enabled``: whether topics are deleted; None: not known yet.

    ``markers``: children of ``/admin/delete_topics`` as last read.

    ``resting``: topics that wait for a broker or a reassignment, and why; ``since_ms``: the creation of markers.

    ``changed`` is set whenever a deletion begins, rests or ends: :meth:`until` looks again. ``awaited``: a caller waits
    until brokers were sent the ended ones. ``refused``: znodes whose deletion failed are tried again after a while.
    ``absent``: brokers with replicas that are not registered. ``forgotten``: rows of the topics last deleted while no
    broker was known to be absent: one that returns later may still have them.
    """

    def __init__(self, cluster: Cluster, queue: EventQueue, *, enabled: bool | None = True) -> None:
        self.enabled = enabled
        self.markers: frozenset[str] = frozenset()
        self.waiting: dict[int, None] = {}
        self.under_way: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.resting: dict[int, str] = {}
        self.since_ms: dict[int, int] = {}
        self.changed = asyncio.Event()
        self.awaited = False
        self.refused = False
        self.absent: set[int] = set()
        self.forgotten: deque[int] = deque(maxlen=PARTITIONS_MAX)
        self._cluster = cluster
        self._queue = queue
        self._answers: list[BrokerResponse] = []
        self._touched: set[int] = set()

    # -- events

    def answered(self, answer: BrokerResponse) -> None:
        """Counts a StopReplica response; deletions that waited for the request to be sent may end."""
        if self._cluster.deletions:
            self._answers.append(answer)
            self._queue.signal(EventKind.DELETION_PROGRESS)

    def resume(self, topics: Iterable[int]) -> None:
        """Queues deletions that may start, or go on with requests that could not be sent before."""
        resumed = dict.fromkeys(topics)
        self.waiting.update(resumed)
        for index in resumed:
            self.resting.pop(index, None)

    def touch(self, topics: Iterable[int]) -> None:
        """Notes topics that may no longer wait for a response."""
        self._touched.update(topics)

    def gone(self, index: int) -> None:
        """Removes a topic that left the model, deleted or not."""
        if index in self._cluster.deletions:
            self._queue.signal(EventKind.TOPIC_DELETION)
        self.changed.set()

    # -- queries

    def began(self, topic: Topic) -> bool:
        """Checks whether a topic left the model, or brokers are sent the removal of all of it."""
        if self._cluster.topic_index.get(topic.name) != topic.index:
            return True
        rows = self._cluster.rows
        forgotten = all(rows[i].state is PartitionState.NON_EXISTENT for i in self._cluster.topics[topic.index].rows)
        return topic.index in self._cluster.deletions and forgotten

    def rests(self, topic: Topic) -> bool:
        """Checks whether a deletion is over, or waits for more than live brokers and its znodes."""
        busy = topic.index in self.under_way or topic.index in self.ended
        return topic.index not in self._cluster.deletions or not busy

    async def until(self, holds: Callable[[], bool], deadline_s: float) -> bool:
        """Waits until a condition on deletions holds; returns False where it does not by then, on the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline_s):
                while not holds():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    # -- work

    def take_answers(self) -> list[BrokerResponse]:
        """Takes the responses of registered brokers; replicas of an earlier incarnation are sent again."""
        taken, self._answers = self._answers, []
        brokers = self._cluster.brokers
        return [a for a in taken if (known := brokers.get(a.broker_id)) is not None and known.epoch == a.broker_epoch]

    async def settle(self) -> dict[int, str]:
        """Sorts the touched topics anew; returns those that rest now, and what they wait for."""
        touched, self._touched = self._touched, set()
        return await self._sort([index for index in sorted(touched) if index in self.under_way])

    def next_turn(self) -> list[int]:
        """Takes the topics whose deletion begins now, as many as there is room for."""
        self._prune()
        busy = sum(self.under_way.values()) + sum(self.ended.values())
        taken: list[int] = []
        size = 0
        for index in self.waiting:
            count = 0 if index in self.under_way else len(self._cluster.topics[index].rows)
            if count and busy + size and busy + size + count > PARTITIONS_MAX:
                break
            taken.append(index)
            size += count
            if size >= TURN_PARTITIONS:
                break
        return taken

    async def begun(self, topics: Iterable[int]) -> dict[int, str]:
        """Notes topics whose requests were sent; returns those that rest all the same, and what they wait for."""
        topics = list(topics)
        for index in topics:
            self.waiting.pop(index, None)
        return await self._sort(topics)

    def _prune(self) -> None:
        """Drops topics that left the model meanwhile."""
        queued = self._cluster.deletions
        self.waiting = {index: None for index in self.waiting if index in queued}
        self.under_way = {index: size for index, size in self.under_way.items() if index in queued}
        self.ended = {index: size for index, size in self.ended.items() if index in queued}
        self.resting = {index: why for index, why in self.resting.items() if index in queued}
        self.since_ms = {index: since for index, since in self.since_ms.items() if index in queued}

    async def _sort(self, topics: Iterable[int]) -> dict[int, str]:
        """Looks at all replicas, with turns of the loop in between, before it moves a topic to another place."""
        cluster = self._cluster
        chosen = dict.fromkeys(topics)
        busy: list[int] = []
        rest: dict[int, bool] = {}
        for index in chosen:
            if await self._holds(any_waits, index, any):
                busy.append(index)
            else:
                rest[index] = await self._holds(all_deleted, index, all)
        for index in rest:
            self.under_way.pop(index, None)
        self.under_way.update(_sizes(cluster, busy))
        self.ended.update(_sizes(cluster, (index for index, done in rest.items() if done)))
        self.changed.set()
        waits = {index: await self._waits_for(index) for index, done in rest.items() if not done}
        found = {index: why for index, why in waits.items() if why is not None}
        self.resting = {index: why for index, why in self.resting.items() if index not in chosen} | found
        self.changed.set()
        return found

    async def _holds(
        self, test: Callable[[Cluster, Sequence[int]], bool], index: int, of: Callable[[Iterable[bool]], bool]
    ) -> bool:
        """Tests the rows of a queued topic part by part, until ``any`` of them, or ``all``, is decided."""
        async for rows in self._parts(index):
            found = test(self._cluster, rows)
            if found is (of is any):
                return found
        return of is all and index in self._cluster.deletions

    async def _waits_for(self, index: int) -> str | None:
        found = {waits_for(self._cluster, rows) async for rows in self._parts(index)}
        return next((why for why in (MOVES, WAITS) if why in found), None)

    async def _parts(self, index: int) -> AsyncIterator[Sequence[int]]:
        """Yields the rows of a queued topic, the last ones first: brokers respond in the order of the rows."""
        rows = self._cluster.topics[index].rows if index in self._cluster.deletions else ()
        for end in range(len(rows), 0, -PART_ROWS):
            yield rows[max(0, end - PART_ROWS) : end]
            if end > PART_ROWS:
                await asyncio.sleep(0)


def _sizes(cluster: Cluster, topics: Iterable[int]) -> dict[int, int]:
    return {index: len(cluster.topics[index].rows) for index in topics}


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
