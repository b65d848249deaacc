"""Terms on an in-memory ZooKeeper: brokers that register, leaders that write, and sockets that only record.

A test decorated with ``@in_world()`` gets brokers 1 to 3; ``await w.begin_term()`` begins a term in ``w.term``. Every
change that is propagated is compared with ZooKeeper (:class:`Witness`), and so is the whole model after every event;
the journals of all terms are judged at the end.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec
from unittest import mock

from brokers.client import BrokerCallFailed, ClusterMetadata, TopicMetadata
from brokers.outbound.channels import Channels
from brokers.outbound.delivery import ChannelSettings, OnEvent
from brokers.queries import Dial
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall, IsrProposal
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from brokers.wire.versions import Ibp
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from controller.kafka.path.events import Event, EventKind
from controller.kafka.requests.calls import Calls
from controller.kafka.requests.values import DeleteTopicsCall, DeleteTopicsReply, ElectLeadersCall
from controller.kafka.term.term import Term
from controller.procedures.parking import Parking
from controller.role.claim import Claim, Role
from controller.role.lease import Lease
from controller.role.own_znodes import Process, this_process
from metadata_store import paths
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from state_machines.decisions.leader_election import ElectionType
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.decision import Change, ReplicaMove
from state_machines.model.types import Broker, TopicPartition
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually, in_exact_time
from tests.kit.journals import Book
from tests.kit.kafka.cluster import Kafka, id_of
from tests.kit.kafka.parts import DAEMON, SECRET, SESSION_S, Clock, Script, Wires
from tests.kit.kafka.role import settings_for

P = ParamSpec("P")
Test = Callable[Concatenate["KafkaWorld", P], Coroutine[Any, Any, None]]


class Witness(Channels):
    """Checks that nothing is propagated that ZooKeeper does not hold, and that the model is never ahead of it."""

    def __init__(
        self,
        w: KafkaWorld,
        cluster: Cluster,
        settings: ChannelSettings,
        gate: Callable[[], bool],
        on_event: OnEvent,
        **more: Any,
    ) -> None:
        super().__init__(cluster, settings, gate, on_event, **(more | {"transport": w.wires}))
        self.w = w
        self.cluster = cluster
        self.propagated: list[Change] = []
        self.stops: list[ReplicaMove] = []
        self.snapshots: list[int] = []

    def propagate(self, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        self.propagated += changes
        self.stops += [move for move in moves if move.stop]
        self.w.check_model(self.cluster)
        super().propagate(changes, moves)

    def snapshot(self, broker_ids: Iterable[int] | None = None, *, came_up: bool = False) -> None:
        self.snapshots += self._channels if broker_ids is None else broker_ids
        super().snapshot(broker_ids, came_up=came_up)

    def receive(self, event: Any) -> None:
        """Takes an event as a channel reports it."""
        self._shared.on_event(event)

    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())


class Seat:
    """One daemon's session and its place in the queue, without the daemon around them."""

    def __init__(
        self, w: KafkaWorld, *, me: Process | None = None, credentials: str | None = None, hold: bool = False
    ) -> None:
        self.w = w
        self.script = Script()
        self.zk = MemoryZooKeeper(w.server, credentials=credentials, hooks=self.script)
        self.me = me or this_process(DAEMON)
        user, _, password = (credentials or "").partition(":")
        self.role = Role(self.zk, self.me, hold=hold, digest=(user, password) if credentials else None, secret=SECRET)
        self.lease = Lease(SESSION_S, w.clock)
        self.term: Term | None = None
        self.claim: Claim | None = None
        self.running: asyncio.Task[str] | None = None

    async def sit(self) -> Seat:
        """Connects and queues."""
        await self.zk.connect(1.0)
        await self.role.enter_queue()
        self.renew()
        return self

    def renew(self) -> None:
        """Notes the response to a heartbeat."""
        self.lease.answered(self.w.clock())

    async def begin(self, ibp: str = "3.9") -> Term:
        """Claims, and begins the term."""
        self.claim = await self.role.claim()
        return self.term_now(self.claim, ibp, await self.role.daemons())

    def term_now(self, claim: Claim, ibp: str, daemons: frozenset[int]) -> Term:
        term = self.term = Term(
            settings=self.w.settings,
            zk=self.zk,
            role=self.role,
            claim=claim,
            lease=self.lease,
            counters=self.w.counters,
            ibp=Ibp.parse(ibp),
            daemons=daemons,
            advertised=("127.0.0.1", 9095),
            dial=self.w.settings_dial,
            journal=self.w.book.term(self.me.id, claim.epoch, KafkaJournal),
            parking=self.w.parking,
        )
        self.w.wires.gate = term.gate.open
        term.controller.dial = self.w.dial
        self.zk.on_watch, self.zk.on_state = term.watched, term.state_changed
        self.zk.on_state_thread = self._at_once
        self.running = asyncio.create_task(term.run())
        return term

    def _at_once(self, state: object) -> None:
        if state == "lost" and self.term is not None:
            self.term.gate.end("the ZooKeeper session is lost")

    async def crash(self) -> None:
        """Kills the process at once."""
        self.zk.on_watch = self.zk.on_state = self.zk.on_state_thread = None
        if self.running is not None:
            if self.term is None or not self.term.gate.ended:  # its end, once begun, closes the channels
                self.running.cancel()
            await asyncio.wait({self.running})
            if not self.running.cancelled():
                self.running.exception()
        if self.zk.session_id in self.w.server._sessions:
            self.w.server.expire(self.zk.session_id)

    async def ended(self) -> str:
        """Why the term ended; waits for it."""
        assert self.running is not None
        return await asyncio.wait_for(self.running, 10.0)


class KafkaWorld(Kafka):
    """Holds the cluster and its daemons. Tests read ZooKeeper in ``states``, and requests to brokers in ``wires``."""

    def __init__(self, folder: Path, changes: dict[str, Any]) -> None:
        super().__init__()
        self.clock = Clock()
        self.counters = Counters()
        self.book = Book()
        self.parking = Parking()
        self.wires = Wires()
        self.settings = settings_for(folder)
        if changes:
            changed = self.settings.controller.model_copy(update=changes)
            self.settings = self.settings.model_copy(update={"controller": changed})
        self.seats: list[Seat] = []
        self.knows: dict[int, dict[str, bytes | None]] = {}
        """Ids of topics in the metadata of the brokers that respond to queries; None for a topic without one."""
        self.queried: list[int] = []
        self.reports: dict[int, dict[str, str | None]] = {}
        """Settings that a broker reports although its configuration in ZooKeeper has others."""
        self.settings_dial: Dial | None = None
        """Queries for the settings of brokers; without it none are adopted."""

    @asynccontextmanager
    async def dial(self, broker: Broker) -> AsyncIterator[Any]:
        """Questions to a broker."""
        self.queried.append(broker.id)
        if broker.id not in self.knows:
            raise BrokerCallFailed("nobody listens")

        async def metadata(topics: Iterable[str]) -> ClusterMetadata:
            known = self.knows[broker.id]
            found = {t: TopicMetadata(0, known[t], {}) if t in known else TopicMetadata(3, None, {}) for t in topics}
            return ClusterMetadata(None, DAEMON, (), found)

        async def broker_configs(broker_id: int, names: Iterable[str]) -> dict[str, str | None]:
            node = self.node(paths.config("brokers", str(broker_id)))
            found = {} if node is None else dict(json.loads(node.data or b"")["config"])
            found |= self.reports.get(broker_id, {})
            return {name: found.get(name) for name in names}

        yield SimpleNamespace(metadata=metadata, broker_configs=broker_configs)

    def agreed(self) -> None:
        """Model and ZooKeeper are equal, partition by partition."""
        cluster = self.term.cluster
        names = [cluster.name(i) for index in cluster.topic_index.values() for i in cluster.topics[index].rows]
        known = {name: leadership_of(cluster.rows[i]) for name in names if (i := cluster.find(*name)) is not None}
        assert {name: state for name, state in known.items() if state is not None} == self.states

    # -- terms

    async def seat(self, **options: Any) -> Seat:
        """A daemon that queues for the role; the role is regent's."""
        seat = Seat(self, **options)
        self.seats.append(seat)
        await seat.sit()
        await seat.role.set_flag("regent", "a test", "uid 0")
        return seat

    async def begin_term(self, ibp: str = "3.9", **options: Any) -> Term:
        """Begins a term of a new daemon, and handles the events of its start."""
        seat = await self.seat(**options)
        await seat.begin(ibp)
        await self.settle()
        return self.term

    async def serve(self, ibp: str = "3.9", **options: Any) -> Term:
        """Begins a term, and waits until brokers have acknowledged everything."""
        term = await self.begin_term(ibp, **options)
        await self.propagated()
        return term

    def forget(self) -> None:
        """Drops the recorded requests, propagated changes and writes."""
        for record in (self.wires.frames, self.witness.propagated, self.active.script.writes):
            record.clear()

    @property
    def active(self) -> Seat:
        """The seat of the last daemon that began a term."""
        return next(seat for seat in reversed(self.seats) if seat.term is not None)

    @property
    def term(self) -> Term:
        """The present term."""
        assert self.active.term is not None
        return self.active.term

    @property
    def witness(self) -> Witness:
        """The present term's channels."""
        channels = self.term.channels
        assert isinstance(channels, Witness)
        return channels

    async def give_role_to(self, holder: str) -> None:
        """Sets the flag, as an operator's command does."""
        await Role(self.operator, this_process(DAEMON), hold=False, digest=None).set_flag(holder, "a test", "uid 0")

    async def settle(self) -> None:
        """Waits until every event so far, and those that it raised, are handled, or the term is over."""
        term, running = self.term, self.active.running
        assert running is not None
        await first_of(asyncio.ensure_future(term.serving.wait()), running)
        quiet = 0
        while quiet < 3 and not running.done() and not term.gate.ended:
            handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            key = "settled", id(handled)
            term.queue.post(Event(EventKind.SETTLED, handled, key=key, preempt=partial(_cancel, handled)))
            await first_of(handled, running)
            await asyncio.sleep(0)
            quiet = 0 if len(term.queue) or term.handling else quiet + 1
        if running.done() and not running.cancelled() and running.exception() is None:
            return
        if not running.done():
            self.check_model(term.cluster)

    async def propagated(self) -> None:
        """Waits until every broker has acknowledged all changes, and the events of its responses are handled."""
        await self.settle()
        await self.ids_queried()
        answered = True
        while answered:
            behind = await self.term.channels.quiesced(5.0)
            assert not behind, f"brokers {sorted(behind)} are behind"
            answered = bool(len(self.term.queue))
            await self.settle()

    async def ids_queried(self) -> None:
        """Waits until no broker is queried for lost topic ids, and handles the result."""
        term = self.term
        await eventually(lambda: not term.controller.lost_ids.asking or term.gate.ended, 120.0)
        await self.settle()

    # -- calls of brokers

    async def alter_partition(
        self, broker: int, *proposals: IsrProposal, version: int = 3, epoch: int | None = None
    ) -> AlterPartitionReply:
        """Makes a leader's call."""
        return await Calls(self.term.queue).alter_partition(
            AlterPartitionCall(version, broker, self.broker_epoch(broker) if epoch is None else epoch, proposals)
        )

    async def controlled_shutdown(self, broker: int, epoch: int | None = None) -> ControlledShutdownReply:
        """Makes the call of a broker that stops."""
        return await Calls(self.term.queue).controlled_shutdown(
            ControlledShutdownCall(3, broker, self.broker_epoch(broker) if epoch is None else epoch)
        )

    async def producer_ids(self, broker: int, epoch: int | None = None) -> AllocateProducerIdsReply:
        """Makes the call of a broker that needs producer ids."""
        return await Calls(self.term.queue).allocate_producer_ids(
            AllocateProducerIdsCall(0, broker, self.broker_epoch(broker) if epoch is None else epoch)
        )

    async def delete_topics(self, *topics: str | bytes, timeout_ms: int = 30_000) -> DeleteTopicsReply:
        """Makes the call of an admin client that deletes topics."""
        return await Calls(self.term.queue).delete_topics(DeleteTopicsCall(topics, timeout_ms))

    async def elect(
        self, kind: ElectionType, *partitions: tuple[str, int], everything: bool = False, timeout_s: float = 30.0
    ) -> dict[tuple[str, int], int]:
        """Makes the call of an admin client for elections; returns the error of each partition."""
        names = None if everything else [TopicPartition(*name) for name in partitions]
        reply = await Calls(self.term.queue).elect_leaders(ElectLeadersCall(kind, names, timeout_s))
        return {(one.topic, one.partition): one.error for one in reply.results}

    def broker_epoch(self, broker: int) -> int:
        """czxid of the registration."""
        node = self.node(paths.broker(broker))
        return node.stat.czxid if node is not None else -1

    def proposal(self, name: str, number: int, /, isr: tuple[int, ...], **changes: Any) -> IsrProposal:
        """Builds a leader's request, by topic id, with the epochs in ZooKeeper."""
        held = self.states.get((name, number))
        fields: dict[str, Any] = {
            "topic": id_of(name), "partition": number, "isr": isr, "recovering": False,
            "leader_epoch": held.leader_epoch if held else 0, "partition_epoch": held.version if held else 0,
        }  # fmt: skip
        return IsrProposal(**(fields | changes))


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Waits until one of them is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _cancel(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()


class _Wall:
    """The wall clock of a world: it begins with the machine's, and goes with the loop's."""

    def __init__(self) -> None:
        self._since_ns = time.time_ns() - int(1e9 * asyncio.get_running_loop().time())

    def time_ns(self) -> int:
        return self._since_ns + int(1e9 * asyncio.get_running_loop().time())


@asynccontextmanager
async def world(*ids: int, folder: Path = Path("/nowhere"), **changes: Any) -> AsyncIterator[KafkaWorld]:
    """Boots a cluster, and kills its daemons in the end; ``changes`` are settings of the section ``controller``."""
    w = KafkaWorld(folder, changes)
    with (
        mock.patch("controller.kafka.term.term.Channels", partial(Witness, w)),
        mock.patch("controller.process.clock.time_ns", _Wall().time_ns),
    ):
        await w.operator.connect(1.0)
        await ensure_top_level_paths(w.operator)
        await w.boot(*(ids or (1, 2, 3)))
        try:
            yield w
        finally:
            for seat in w.seats:
                await seat.crash()
        found = [str(violation) for violation in w.book.violations()]
        assert not found, found


def in_world(
    *ids: int, before: Callable[[KafkaWorld], Awaitable[object]] | None = None, **changes: Any
) -> Callable[[Test[P]], Callable[P, None]]:
    """Runs a test in a :func:`world`, its first argument, on a clock that timers alone move; ``before`` prepares it."""

    def decorate(test: Test[P]) -> Callable[P, None]:
        @functools.wraps(test)
        async def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async with world(*ids, **changes) as w:
                if before is not None:
                    await before(w)
                await test(w, *args, **kwargs)

        _, *others = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]  # pytest reads it
        return in_exact_time(run)

    return decorate
