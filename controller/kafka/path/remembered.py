"""Remembers what happened in a term, until it ends: changes, deaths of brokers, the pause, lost topic ids, strays."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from brokers.outbound.delivery import LogsStopped
from brokers.wire.errors import Error, error_name
from controller.kafka.path.events import EventKind, EventQueue
from controller.process.wording import counted
from metadata_store.nodes.pause_node import Pause
from metadata_store.nodes.stray_nodes import Found, StrayKey, StrayNodes
from state_machines.decisions.topic_change import Evidence
from state_machines.model.decision import Change
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

CHANGES_MAX: Final = 20_000
"""Changes kept over all partitions: the rows before and after each stay in memory with it."""
BROKERS_MAX: Final = 1_000
"""Dead brokers whose times are kept; the earliest are dropped first, and count as dead since before the term."""
TRIES_MAX: Final = 4
"""Queries to brokers that do not respond: together they last longer than most sessions of frozen brokers."""
SPARED: Final = "an assignment came to name the broker, or its topic is in doubt: list the strays again"
FENCED: Final = Error.FENCED_LEADER_EPOCH
KEPT: Final = (
    "broker %d keeps the logs of %s, the first is %s: it knows a higher leader epoch than ZooKeeper, as of an earlier "
    "topic of this name; restart that broker to have them deleted"
)
Log = tuple[int, TopicPartition]
"""A broker and a partition."""


class RecentChanges:
    """Keeps batches as they were applied; it copies and indexes nothing, a query searches from the newest."""

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self._batches: deque[Sequence[Change]] = deque()
        self._max = changes_max
        self._count = 0

    def add(self, changes: Sequence[Change]) -> None:
        """Adds an applied batch; of one above the bound only the end is kept."""
        if not changes:
            return
        batch = changes[-self._max :] if len(changes) > self._max else changes
        self._batches.append(batch)
        self._count += len(batch)
        while self._count > self._max:
            self._count -= len(self._batches.popleft())

    def why(self, entity: int) -> str | None:
        """Returns the reason of a row's last change and the brokers that left its ISR; None where it is not kept."""
        for batch in reversed(self._batches):
            for change in reversed(batch):
                if change.entity == entity:
                    return _sentence(change)
        return None


def _sentence(change: Change) -> str:
    left = [str(broker) for broker in change.before.isr if broker not in change.after.isr]
    return f"{change.why}; {', '.join(left)} left the ISR" if left else change.why


class Departed:
    """Holds times of the wall clock, in milliseconds. ``began_ms``: when this term read the brokers, 0 before."""

    def __init__(self) -> None:
        self.began_ms = 0
        self._since_ms: dict[int, int] = {}

    def gone(self, brokers: Collection[int], now_ms: int) -> None:
        """Notes that brokers died now."""
        for broker in brokers:
            self._since_ms.pop(broker, None)
            self._since_ms[broker] = now_ms
        while len(self._since_ms) > BROKERS_MAX:
            del self._since_ms[next(iter(self._since_ms))]

    def back(self, brokers: Collection[int]) -> None:
        """Notes that brokers registered."""
        for broker in brokers:
            self._since_ms.pop(broker, None)

    def learn(self, earlier_ms: Mapping[int, int]) -> None:
        """Takes over the times of terms before; what this term saw itself stays."""
        self._since_ms = dict(sorted(earlier_ms.items(), key=lambda one: one[1])[-BROKERS_MAX:]) | self._since_ms

    def since_ms(self, broker: int) -> int | None:
        """Returns when a dead broker died; None where it was dead before the terms that are known."""
        return self._since_ms.get(broker)


@dataclass(slots=True)
class Pauses:
    """The pause ``in_force``, and the latest one whose time has passed, by a clock that is never set."""

    in_force: Pause | None = None
    over: Pause | None = None


class LostIds:
    """Notes the topics without ids. Handlers change it; the query's task adds ``evidence`` and ``silent``.

    ``topics``: name -> czxid of those whose id is not known; ``fresh``: no broker was queried for them yet; ``unsent``:
    no broker was sent their metadata since. ``ids``: verdicts that have still to be written, ``found`` are not made up.
    ``none_had_one``: no topic that ran had an id when the term began, or an earlier one that noted it (``noted``).
    ``sent``: brokers that were sent topics without ids, ``late`` before they answered; ``sent_before``: an earlier term
    may have sent them to any. ``silent``: why brokers did
    not answer. ``made_up``: ids were given and are still unsent. ``said``: what was logged last.
    """

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.fresh: set[str] = set()
        self.unsent: set[str] = set()
        self.none_had_one = False
        self.noted: bytes | None = None
        self.evidence = Evidence()
        self.ids: dict[str, bytes] = {}
        self.found: set[str] = set()
        self.made_up = False
        self.sent_before = False
        self.sent: set[int] = set()
        self.late: set[int] = set()
        self.silent: dict[int, str] = {}
        self.tries_left = 0
        self.asking = False
        self.said: frozenset[str] = frozenset()

    def add(self, name: str, czxid: int) -> None:
        """Adds a topic that has state znodes and no id; one that is known already keeps its verdict."""
        if self.topics.get(name) != czxid:
            self.topics[name] = czxid
            self.fresh.add(name)
            self.unsent.add(name)

    def drop(self, name: str) -> None:
        """Removes a topic that has an id, or is gone."""
        self.topics.pop(name, None)
        self.ids.pop(name, None)
        self.fresh.discard(name)
        self.unsent.discard(name)
        self.found.discard(name)

    def ask(self, *, of_new: bool) -> bool:
        """Requests ``TRIES_MAX`` tries from now on, which query all brokers for ``of_new`` topics.

        Returns whether no task runs them yet.
        """
        if of_new:
            self.evidence = Evidence(self.evidence, sampled=self.none_had_one and not self.evidence.ids)
        self.tries_left = TRIES_MAX
        begins, self.asking = not self.asking, True
        return begins

    def ask_of_all(self) -> None:
        """Queries brokers for every topic from now on: one knows the id of a topic of the sample."""
        self.evidence = Evidence(self.evidence)
        self.tries_left = TRIES_MAX


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
