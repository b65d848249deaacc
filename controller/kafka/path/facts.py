"""Holds the model of one term: reads ZooKeeper, and enters facts by the one way in, :meth:`Facts.enter`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from brokers.outbound.channels import Channels
from brokers.queries import Dial
from brokers.wire.versions import Ibp
from controller.kafka.journal.term_journal import KafkaJournal, record
from controller.kafka.metrics.values import Counters
from controller.kafka.path.adoption import Adoption
from controller.kafka.path.agenda import DeletionQueue, ReassignmentQueue
from controller.kafka.path.events import EventKind, EventQueue
from controller.kafka.path.gate import Gate
from controller.kafka.path.remembered import LostIds, RecentChanges, StrayMemory
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import MultiFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.kafka_store import KafkaStore
from metadata_store.port import Op
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Change
from state_machines.model.facts import NOTHING, BouncedBack, BrokersRead, Entered, Fact
from state_machines.model.topic_facts import StatesRead, TopicGone, TopicIdRead, TopicIdSettled
from state_machines.model.types import Broker, Leadership

log = logging.getLogger("regent.controller")

T = TypeVar("T")

GATE_POLL_S = 0.02
REGISTERED: Final = BrokersRead, BouncedBack
"""Facts after which every broker is sent the live brokers."""


@dataclass(frozen=True, slots=True)
class StoreSide:
    """ZooKeeper, and when the term may write there."""

    store: KafkaStore
    gate: Gate
    conflict_rounds_max: int


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """The brokers. ``daemons``: ids of all daemons, which host no replica."""

    channels: Channels
    ibp: Ibp
    daemons: frozenset[int]
    dial: Dial | None = None


@dataclass(frozen=True, slots=True)
class TermMemory:
    """The model of the term, its queue of events, and what else it remembers until it ends."""

    cluster: Cluster
    queue: EventQueue
    counters: Counters
    adoption: Adoption
    deletion_queue: DeletionQueue
    journal: KafkaJournal = field(default_factory=KafkaJournal)


class Facts:
    """Reads, and enters what differs from the model: it is sent to brokers, whichever client wrote it."""

    def __init__(self, store: StoreSide, brokers: BrokerSide, memory: TermMemory) -> None:
        self.store = store.store
        self.zk = store.store.zk
        self.gate = store.gate
        self.fence = Fence(store.gate.fence_version, store.gate.open)
        self.channels = brokers.channels
        self.ibp = brokers.ibp
        self.cluster = memory.cluster
        self.queue = memory.queue
        self.counters = memory.counters
        self.journal = memory.journal
        self.adoption = memory.adoption
        self.recent = RecentChanges()
        self.reassignment_queue = ReassignmentQueue()
        self.lost_ids = LostIds()
        self.strays = StrayMemory(self.queue)
        self.ghosts: dict[str, set[int]] = {}
        """Partitions by topic that brokers show and the model lacks: :mod:`controller.kafka.topics.ghosts`."""
        self.vanished: dict[str, set[int]] = {}
        """Partitions by topic that brokers show still: the topic's znode vanished without a deletion in this term."""
        self.unread_topics: set[str] = set()
        """Topics whose znodes could not be understood when they were last read: the model may lack them."""
        self.late: set[int] = set()
        """Rows that :func:`state_machines.decisions.failover.take_up` has yet to be carried out for."""

    # -- the one way in

    def enter(self, fact: Fact) -> Entered:
        """Enters a fact: into the model, then into the journal, then into the channels. Raises TermEnded.

        It does not wait, so nothing sees the one without the others. Events that follow from the fact are signalled.
        """
        self.gate.check()
        entered = fact.enter(self.cluster)
        if entered is not NOTHING:
            record(self.journal, self.cluster, fact, entered, self.adoption.session_ms)
            self._send(fact, entered)
            self._follow(fact, entered)
        return entered

    def _send(self, fact: Fact, entered: Entered) -> None:
        """Sends brokers what a fact has changed. Late partitions are sent once they are taken up."""
        for gone in entered.gone:
            self.channels.remove(gone.id)
        for broker in entered.connected:
            self.channels.add(broker)
        if isinstance(fact, REGISTERED):
            self.channels.live_list_changed()
        elif isinstance(fact, StatesRead):
            self.channels.propagate([change for change in entered.changes if not change.is_late], ())
        elif isinstance(fact, TopicGone | TopicIdSettled) or (isinstance(fact, TopicIdRead) and self.ibp.topic_ids):
            self.channels.hand_out(entered.topics)
        if entered.metadata:
            self.channels.metadata_changed(entered.metadata)

    def _follow(self, fact: Fact, entered: Entered) -> None:
        """Notes what else changes with a fact, and signals events that act on it."""
        if isinstance(fact, StatesRead):
            self.recent.add(entered.changes)
            self.take_up(change.entity for change in entered.changes if change.is_late)
            self._wake_reassignments(entered.changes)
        elif isinstance(fact, TopicIdRead) and self.ibp.topic_ids:
            if fact.topic in self.lost_ids.topics:
                self.lost_ids.drop(fact.topic)
                self.queue.signal(EventKind.LOST_IDS)
            self.take_up(entered.rows)

    def take_up(self, rows: Iterable[int]) -> None:
        """Queues rows that get another leader epoch before they are sent to brokers, by an event of its own."""
        if rows := set(rows):
            self.late |= rows
            self.queue.signal(EventKind.LATE_PARTITIONS)

    # -- read

    async def reread(self, rows: Sequence[int]) -> Sequence[Change]:
        """Reads state znodes again (after ``sync`` on a connection that is up) and enters them; returns what is new."""
        found = await self.read_states([self.cluster.name(i) for i in rows])
        states = [(i, one) for i, one in zip(rows, found, strict=True) if isinstance(one, Leadership)]
        return self.enter(StatesRead(states)).changes

    async def reread_isrs(self, rows: Sequence[int]) -> None:
        """Reads ISRs again before a refusal that depends on them, where leaders write them (below IBP 2.7-IV2)."""
        if rows and not self.ibp.alter_partition:
            await self.reread(rows)

    async def read_brokers(self) -> dict[int, Broker]:
        """Reads the registrations; malformed ones are reported by path and count as not live."""
        found = await self.store.load_brokers()
        self.gate.check()
        for bad in found.malformed:
            self.malformed(bad)
        return found.brokers

    async def read_states(self, pairs: Sequence[tuple[str, int]]) -> list[Leadership | MalformedNode | None]:
        """Reads state znodes of partitions after a ``sync``; malformed ones are reported by path and watched."""

        async def read() -> list[Leadership | MalformedNode | None]:
            since = self.zk.last_zxid
            await self.zk.sync("/brokers/topics")
            found = await self.store.load_states(pairs)
            bad = [state.path for state in found if isinstance(state, MalformedNode)]
            if bad:
                await self.zk.watch(data=bad, since_zxid=since)
            return found

        found = await self.until_read(read)
        for state in found:
            if isinstance(state, MalformedNode):
                self.malformed(state)
        return found

    def malformed(self, found: MalformedNode) -> None:
        """Reports a malformed znode once, by its path; the others are served.

        It stays listed until a watch reports a change, then it is read again.
        """
        parent, _, name = found.path.rpartition("/")
        if parent == paths.TOPICS:
            self.unread_topics.add(name)
        if self.counters.malformed.get(found.path) != found.why:
            log.error(
                "%s cannot be used: %s; repair or delete it, the rest of the cluster is served", found.path, found.why
            )
            self.counters.malformed[found.path] = found.why

    def malformed_below(self, parent: str) -> list[str]:
        """Lists the paths of malformed children of a znode: they are watched like the others."""
        return [path for path in self.counters.malformed if path.rpartition("/")[0] == parent]

    def _wake_reassignments(self, changes: Sequence[Change]) -> None:
        """Marks reassignments that may have waited for a changed ISR (S4-54)."""
        moving = self.cluster.reassigning
        found = [c.entity for c in changes if c.entity in moving and c.after.isr != c.before.isr] if moving else ()
        if found:
            self.reassignment_queue.due.update(found)
            self.queue.signal(EventKind.ADVANCE_REASSIGNMENTS)

    # -- the connection

    async def connected(self) -> None:
        """Waits until connection, claim and lease hold; raises TermEnded where the term is over."""
        while not self.gate.open():
            self.gate.check()
            with anyio.move_on_after(GATE_POLL_S):
                await self.gate.ready.wait()
                await asyncio.sleep(GATE_POLL_S)

    async def until_read(self, read: Callable[[], Awaitable[T]]) -> T:
        """Returns what ``read`` returns; repeats it after each lost connection. Raises TermEnded."""
        while True:
            await self.connected()
            try:
                found = await read()
            except (NotConnected, OutcomeUnknown):
                continue
            self.gate.check()
            return found

    async def write_singly(self, op: Op) -> ZkError | None:
        """Makes one fenced write on a connection that is up; returns the error where ZooKeeper refused it."""
        await self.connected()
        try:
            failed: ZkError | None = await submit(self.zk, self.fence, [op])
        except MultiFailed:
            raise  # the check of the controller epoch failed
        except ZkError as error:
            failed = error
        self.gate.check()
        return failed
