"""Keeps the replicas that brokers missed to stop, as ZooKeeper has them, and the removals that operators wait for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final

from brokers.outbound.delivery import LogsStopped
from brokers.wire.errors import Error, error_name
from controller.kafka.path.events import EventKind, EventQueue
from controller.process.wording import counted
from metadata_store.nodes.stray_nodes import Found, StrayKey, StrayNodes
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

SPARED: Final = "an assignment came to name the broker, or its topic is in doubt: list the strays again"

FENCED: Final = Error.FENCED_LEADER_EPOCH
KEPT: Final = (
    "broker %d keeps the logs of %s, the first is %s: it knows a higher leader epoch than ZooKeeper, as of an earlier "
    "topic of this name; restart that broker to have them deleted"
)

Log = tuple[int, TopicPartition]
"""A broker and a partition."""


class Removal:
    """Strays that an operator removes on one broker. ``left``: those without a response.

    ``outcomes`` has the others: None where the log is deleted, or why it stays.
    """

    def __init__(self, broker: int, names: Collection[TopicPartition]) -> None:
        self.broker = broker
        self.outcomes: dict[TopicPartition, str | None] = {}
        self.done = asyncio.Event()
        self.left = tuple(dict.fromkeys(names))

    def note(self, answer: LogsStopped) -> None:
        """Notes the outcomes that a broker's response has."""
        if answer.broker_id == self.broker:
            refused = {name: _refusal(error) for name, error in answer.refused.items()}
            found = {**dict.fromkeys(answer.acknowledged), **refused, **dict.fromkeys(answer.spared, SPARED)}
            self.end({name: why for name, why in found.items() if name in self.left})

    def end(self, outcomes: Mapping[TopicPartition, str | None]) -> None:
        """Notes outcomes."""
        self.outcomes |= outcomes
        self.left = tuple(name for name in self.left if name not in outcomes)
        if not self.left:
            self.done.set()


def _refusal(error: int) -> str:
    remedy = ": it knows a higher leader epoch: restart it, then remove the log again" if error == FENCED else ""
    return f"the broker refused with {error_name(error)}{remedy}"


class StrayMemory:
    """What ``/regent/strays`` has, as the last read or write found it.

    ``stopped``: partitions whose logs brokers have deleted by now, still to be forgotten. ``resting``: logs that a
    broker refused to delete, until it returns or a while has passed. ``fenced``: logs that a broker knows with a higher
    leader epoch, until it returns: a log line has named them. ``removals``: operators wait for them.
    """

    def __init__(self, queue: EventQueue) -> None:
        self.entries: dict[StrayKey, Found] = {}
        self.parent = False
        self.unread: frozenset[str] = frozenset()
        """Paths that are not understood, and not written over."""
        self.stopped: set[Log] = set()
        self.resting: dict[Log, int] = {}
        self.fenced: set[Log] = set()
        self.removals: list[Removal] = []
        self.timer = False
        self._queue = queue

    def load(self, found: StrayNodes) -> None:
        """Replaces the memories by those that were read."""
        self.entries, self.parent = found.entries, found.parent
        self.unread = frozenset(bad.path for bad in found.unread)

    def answered(self, answer: LogsStopped) -> None:
        """Takes a broker's response to StopReplica by name."""
        for removal in self.removals:
            removal.note(answer)
        known = set(self._remembered(answer.broker_id, (*answer.acknowledged, *answer.refused, *answer.spared)))
        self.stopped.update((answer.broker_id, name) for name in answer.acknowledged if name in known)
        fenced = [name for name in known.intersection(answer.refused) if answer.refused[name] == FENCED]
        if new := [name for name in fenced if (answer.broker_id, name) not in self.fenced]:
            self.fenced.update((answer.broker_id, name) for name in new)
            log.warning(KEPT, answer.broker_id, counted(len(new), "removed replica"), new[0])
        self.resting |= {(answer.broker_id, name): answer.refused[name] for name in known.intersection(answer.refused)}
        if known:
            self._queue.signal(EventKind.STRAYS)

    def _remembered(self, broker: int, names: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
        """Yields those of the partitions that are remembered on a broker."""
        for name in names:
            found = self.entries.get(StrayKey(broker, name.topic))
            if found is not None and name.partition in found.content.partitions:
                yield name

    def returned(self, brokers: Collection[int]) -> None:
        """Has logs of returned brokers tried again at once."""
        self.resting = {one: error for one, error in self.resting.items() if one[0] not in brokers}
        self.fenced = {one for one in self.fenced if one[0] not in brokers}
        if any(key.broker in brokers for key in self.entries):
            self._queue.signal(EventKind.STRAYS)

    def logs(self, brokers: Container[int] | None = None) -> Iterator[tuple[StrayKey, TopicPartition]]:
        """Yields the logs on these brokers (None: on all), each with its key."""
        for key, found in self.entries.items():
            for number in found.content.partitions if brokers is None or key.broker in brokers else ():
                yield key, TopicPartition(key.topic, number)

    def on(self, brokers: Collection[int] | None = None) -> int:
        """Counts the logs on these brokers (None: on all)."""
        wanted = (found for key, found in self.entries.items() if brokers is None or key.broker in brokers)
        return sum(len(found.content.partitions) for found in wanted)

    def forgotten(self, logs: Iterable[Log]) -> None:
        """Drops the notes of the term about logs."""
        for one in logs:
            self.stopped.discard(one)
            self.resting.pop(one, None)
            self.fenced.discard(one)
