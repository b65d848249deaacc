"""Declares the events of a term, and queues them for its one consumer; each term makes its own queue."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")

EVENTS_MAX = 10_000
"""Bound of the queue, in events: calls beyond it are refused; level-triggered events collapse and always fit."""


class EventKind(StrEnum):
    """Names the kinds; the values are labels of the metric ``regent_event_seconds``."""

    FAILOVER = "failover"
    RECONNECTED = "reconnected"
    BROKER_CHANGE = "broker_change"
    TOPIC_CHANGE = "topic_change"
    TOPIC_DELETION = "topic_deletion"
    ISR_NOTIFICATION = "isr_notification"
    REASSIGN_PARTITIONS = "reassign_partitions"
    REASSIGNED_STATES = "reassigned_states"
    LOG_DIR_EVENT = "log_dir_event"
    PREFERRED_ELECTION = "preferred_election"
    CONFIG_CHANGE = "config_change"
    ENDPOINT_CHANGE = "endpoint_change"
    CORDON_CHANGE = "cordon_change"
    PAUSE_CHANGE = "pause_change"
    ACL_CHANGE = "acl_change"
    PARTITION_MODIFICATIONS = "partition_modifications"
    REPAIRED_STATE = "mended_state"
    REASSIGNED_STATE = "reassigned_state"
    DELETION_PROGRESS = "deletion_progress"
    LATE_PARTITIONS = "late_partitions"
    LOST_IDS = "lost_ids"
    RESUME_REASSIGNMENTS = "resume_reassignments"
    ADVANCE_REASSIGNMENTS = "advance_reassignments"
    FINISH_REASSIGNMENTS = "finish_reassignments"
    DROPPED_REPLICAS = "dropped_replicas"
    STRAYS = "strays"
    GHOSTS = "ghosts"
    REPLACE_DAEMONS = "replace_daemons"
    REPLICAS_FAILED = "replicas_failed"
    AUTO_BALANCE = "auto_balance"
    BROKER_SETTINGS = "broker_settings"
    EXPIRED_TOKENS = "expired_tokens"
    PROCEDURES = "procedures"
    SETTLED = "settled"
    ALTER_PARTITION = "alter_partition"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    UNDO_SHUTDOWN = "undo_shutdown"
    UNDRAIN = "undrain"
    REMOVE_STRAYS = "remove_strays"
    ALLOCATE_PRODUCER_IDS = "allocate_producer_ids"
    DELETE_TOPICS = "delete_topics"
    GIVE_UP = "give_up"
    ELECT_LEADERS = "elect_leaders"
    ALTER_REASSIGNMENTS = "alter_reassignments"
    LIST_REASSIGNMENTS = "list_reassignments"
    CREATE_TOPICS = "create_topics"
    CREATE_PARTITIONS = "create_partitions"
    ALTER_SCRAM_CREDENTIALS = "alter_user_scram_credentials"
    UPDATE_FEATURES = "update_features"


class QueueFull(Exception):
    """Refuses a call because too many events wait; its caller may try again."""


class Event:
    """Carries what one handler needs. ``key``: None for an event that does not collapse.

    ``preempt`` is called instead of the handler when the term ends first, or the queue refuses calls: it refuses the
    waiting callers.
    """

    __slots__ = ("detail", "enqueued_s", "key", "kind", "preempt")

    def __init__(
        self,
        kind: EventKind,
        detail: object = None,
        *,
        key: Hashable | None = None,
        preempt: Callable[[], None] | None = None,
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.key = key
        self.preempt = preempt
        self.enqueued_s = time.monotonic()

    def drop(self) -> None:
        """Calls ``preempt``: the term ended before the event was handled."""
        if self.preempt is not None:
            self.preempt()


def _is_call(event: Event) -> bool:
    return event.key is None and event.preempt is not None


async def settled(event: Event) -> None:
    """Sets the future in an event's detail: its waiter knows that the events before it were handled."""
    assert isinstance(event.detail, asyncio.Future)
    if not event.detail.done():
        event.detail.set_result(None)


class EventQueue:
    """Keeps events in order for one consumer. All methods run on the loop's thread."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[Event] = deque()
        self._keys: set[Hashable] = set()
        self._arrived = asyncio.Event()
        self._events_max = events_max
        self._refuses_calls = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def post(self, event: Event) -> None:
        """Enqueues; an event whose key already waits is dropped. Raises :class:`QueueFull` for calls only."""
        if self._closed or (self._refuses_calls and _is_call(event)):
            event.drop()
            return
        if event.key is not None:
            if event.key in self._keys:
                return
            self._keys.add(event.key)
        elif len(self._events) >= self._events_max:
            raise QueueFull(f"{len(self._events)} events wait: try again")
        self._events.append(event)
        self._arrived.set()

    def signal(self, kind: EventKind, detail: Hashable = None) -> None:
        """Enqueues a level-triggered event."""
        self.post(Event(kind, detail, key=(kind, detail)))

    async def next(self) -> Event:
        """Takes the oldest event; waits for one."""
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def following(
        self, kind: EventKind, first: T, count_max: int, size: Callable[[T], int] = lambda _: 0, size_max: int = 1
    ) -> list[T]:
        """Returns ``first``, the detail of the event under way, and takes those of its kind that directly follow.

        At most ``count_max`` in all; none is added once their sizes together reach ``size_max``.
        """
        found, total = [first], size(first)
        while len(found) < count_max and total < size_max and self._events and self._events[0].kind is kind:
            detail = self._take().detail
            assert isinstance(detail, type(first))
            found.append(detail)
            total += size(detail)
        return found

    def refuse_calls(self) -> None:
        """Preempts the calls that wait, and those posted until :meth:`take_calls`: nothing can be done for them now."""
        self._refuses_calls = True
        calls = [event for event in self._events if _is_call(event)]
        self._events = deque(event for event in self._events if not _is_call(event))
        for call in calls:
            call.drop()

    def take_calls(self) -> None:
        """Takes calls again, behind the events that wait."""
        self._refuses_calls = False

    def close(self) -> None:
        """Preempts the waiting events, and those posted from now on: the term ended."""
        self._closed = True
        while self._events:
            self._take().drop()

    def _take(self) -> Event:
        event = self._events.popleft()
        if event.key is not None:
            self._keys.discard(event.key)
        return event
