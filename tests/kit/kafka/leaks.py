"""A whole daemon in memory, for thousands of bounces, terms and topics; and the memory that they leave occupied."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import pytest

from brokers.client import BrokerCallFailed
from brokers.listener.controller_listener import NotController
from brokers.queries import BrokerQueries
from brokers.wire.calls import AlterPartitionCall, IsrProposal
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.path.events import Event, EventKind
from controller.kafka.path.remembered import RecentChanges
from controller.kafka.requests.calls import Calls
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.kafka.term.term import Term
from controller.metrics import Timer, exposition, registry
from controller.operator.view import View
from controller.role.claim import Role
from controller.role.own_znodes import this_process
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from state_machines.model.types import Broker
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually
from tests.kit.kafka.cluster import Kafka, id_of
from tests.kit.kafka.daemons import loop_lease
from tests.kit.kafka.parts import DAEMON, UPDATE_METADATA
from tests.kit.kafka.role import settings_for

CHANGES_MAX: Final = 100
TIMERS_S: Final = 600.0
"""Longer than any timer of a daemon; of virtual time."""


class Kept(NamedTuple):
    """What is in memory: objects that the collector follows, and small blocks of any kind (512 bytes at most)."""

    objects: int
    blocks: int


async def kept() -> Kept:
    """Counts after all garbage was freed; the loop keeps cancelled timers until their time."""
    await asyncio.sleep(TIMERS_S)
    gc.collect()
    return Kept(len(gc.get_objects()), sys.getallocatedblocks())


async def growth(act: Callable[[], Awaitable[None]], warm_up: int, times: int) -> Kept:
    """What ``times`` calls leave in memory that ``warm_up`` calls before them had not filled yet."""
    for _ in range(warm_up):
        await act()
    before = await kept()
    for _ in range(times):
        await act()
    after = await kept()
    return Kept(after.objects - before.objects, after.blocks - before.blocks)


class Obliging:
    """Responds for every broker at once and keeps nothing; brokers in ``silent`` never respond."""

    def __init__(self) -> None:
        self.silent: set[int] = set()

    async def connect(self, host: str, _port: int, _on_lost: Callable[[], None]) -> Line:
        return Line(self, int(host.rpartition("-")[2]))


class Line:
    """One connection."""

    def __init__(self, wires: Obliging, broker: int) -> None:
        self._wires = wires
        self._broker = broker
        self.closed = False

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        if self._broker in self._wires.silent:
            await asyncio.get_running_loop().create_future()
        head = b"".join(parts)[4:12]
        await asyncio.sleep(0)
        return head[4:] + b"\0\0\0" + (b"\0" if head[1] == UPDATE_METADATA else b"\1\0")

    def close(self) -> None:
        self.closed = True


class Nobody:
    """Queries to a broker, all of which fail."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def __aenter__(self) -> BrokerQueries:
        raise BrokerCallFailed(f"broker {self._broker.id} is not there")

    async def __aexit__(self, *_: object) -> None:
        pass


class Life(Kafka):
    """A cluster in memory and one daemon that holds its role."""

    def __init__(self) -> None:
        super().__init__()
        self.wires = Obliging()
        settings = settings_for(Path("/nowhere"))
        self.daemon = Daemon(settings, self._session, new_lease=loop_lease, transport=self.wires)
        self._view = View(self.daemon, dial=Nobody)
        self._metrics = registry(KafkaCollector(self.daemon.counters, self._view, KAFKA_STATES))

    def _session(self) -> MemoryZooKeeper:
        return MemoryZooKeeper(self.server)

    @property
    def term(self) -> Term:
        """The present term."""
        assert self.daemon.term is not None
        return self.daemon.term

    @property
    def session(self) -> int:
        """The daemon's session."""
        assert self.daemon.zk is not None
        return self.daemon.zk.session_id

    async def calm(self) -> None:
        """Waits until the daemon serves, all events are handled and brokers have acknowledged all changes."""
        turns = 0
        while turns < 4:
            await eventually(lambda: self.daemon.mode is Mode.ACTIVE and self.daemon.term is not None)
            await asyncio.sleep(0)
            turns = turns + 1 if self.daemon.term is not None else 0
        term = self.term
        while len(term.queue) or term.handling:
            handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            term.queue.post(Event(EventKind.SETTLED, handled, key=id(handled), preempt=partial(_give_up, handled)))
            await asyncio.wait({handled})
        if await self._behind(term) and await self._behind(term):  # leaders may be balanced as the first wait ends
            assert term.gate.ended, f"brokers {sorted(await self._behind(term))} are behind"

    async def _behind(self, term: Term) -> frozenset[int]:
        """Waits until brokers have acknowledged all changes; where some are silent, as long as the others may take."""
        return await term.channels.quiesced(10.0 if self.wires.silent else 60.0) - self.wires.silent

    async def in_sync(self) -> None:
        """Has every leader request the ISR with all replicas on live brokers."""
        cluster = self.term.cluster
        wishes: dict[int, list[IsrProposal]] = {}
        for row in cluster.rows:
            isr = tuple(b for b in row.assignment.replicas if b in cluster.live)
            if row.has_leadership and row.leader in cluster.live and set(isr) != set(row.isr):
                topic = cluster.topics[row.topic].topic_id or b""
                wish = IsrProposal(topic, row.partition, row.leader_epoch, isr, row.version, False)
                wishes.setdefault(row.leader, []).append(wish)
        for leader, proposals in wishes.items():
            call = AlterPartitionCall(3, leader, cluster.brokers[leader].epoch, tuple(proposals))
            reply = await Calls(self.term.queue).alter_partition(call)
            assert not reply.error
            assert not any(p.error for p in reply.partitions)
        await self.calm()

    async def scraped(self) -> None:
        """Scrapes the metrics, and reads the views of operators."""
        await self._view.refresh()
        exposition(self._metrics, "")
        self._view.whole.status()
        self._view.brokers.listed()

    def metric(self, name: str) -> dict[str, float]:
        """Samples of a metric, by broker."""
        found = {
            sample.labels.get("broker_id", ""): sample.value
            for family in self._metrics.collect()
            for sample in family.samples
            if sample.name == name
        }
        assert found, name
        return found


def _give_up(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()


@contextmanager
def short_windows() -> Iterator[None]:
    """Recent durations and changes are few, so that what is kept of them is full soon."""
    few = partial(RecentChanges, CHANGES_MAX)
    with mock.patch.object(Timer, "WINDOW", 8), mock.patch("controller.kafka.path.facts.RecentChanges", few):
        yield


@contextmanager
def silence() -> Iterator[None]:
    """Nothing is logged."""
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@asynccontextmanager
async def life(*ids: int) -> AsyncIterator[Life]:
    """Brokers ``ids`` and an active daemon.

    The collector runs only where it is asked to, and nothing is logged: what runs the tests keeps each record.
    """
    with silence():
        made = Life()
        await made.operator.connect(1.0)
        await ensure_top_level_paths(made.operator)
        await made.boot(*ids)
        await Role(made.operator, this_process(DAEMON + 1), hold=False, digest=None).set_flag(
            "regent", "a test", "uid 0"
        )
        running = asyncio.create_task(made.daemon.run())
        try:
            await made.calm()
            yield made
        finally:
            made.daemon.stop()
            await asyncio.wait_for(running, 60.0)


PARTITIONS: Final = (1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)


def flat(found: Kept, events: float) -> bool:
    """Whether less than half a small object stays for each event."""
    return max(found) < events / 2


class Bouncing:
    """Restarts one broker after the other, which catches up; scrapes now and then."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.number = 0

    async def __call__(self) -> None:
        self.number += 1
        await self.w.bounce(self.number % 4 + 1)
        await self.w.calm()
        await self.w.in_sync()
        if self.number % 50 == 0:
            await self.w.scraped()


async def fenced_at_a_write(w: Life) -> None:
    """Elects another controller; the daemon's next write finds it."""
    cluster = w.term.cluster
    w.server.hold_watches(w.session)
    await w.seize()
    row = cluster.rows[0]
    wish = IsrProposal(id_of("t"), 0, row.leader_epoch, row.isr[:1] or row.isr, row.version, False)
    with pytest.raises(NotController):
        await Calls(w.term.queue).alter_partition(
            AlterPartitionCall(3, row.leader, cluster.brokers[row.leader].epoch, (wish,))
        )
    w.server.release_watches(w.session)


class Terms:
    """Terms end in turn by an election, at a write, and with the session."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.kinds = itertools.cycle(("elected", "fenced", "expired"))

    async def __call__(self) -> None:
        w, kind, finished = self.w, next(self.kinds), self.w.term.finished
        if kind == "elected":
            await w.seize()
        elif kind == "fenced":
            await fenced_at_a_write(w)
        else:
            w.server.expire(w.session)
        await finished.wait()
        await w.calm()
        await w.in_sync()
        await w.scraped()


class Topics:
    """A topic of three partitions is created, runs, and vanishes."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.number = 0

    async def __call__(self) -> None:
        self.number += 1
        await self.w.topic(f"topic-{self.number:06d}", (1, 2, 3), (2, 3, 4), (3, 4, 1))
        await self.w.calm()
        await self.w.delete_topic(f"topic-{self.number:06d}")
        await self.w.calm()
