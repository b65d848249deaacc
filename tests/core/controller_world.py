"""Terms of office on an in-memory ZooKeeper: brokers that register, leaders that write, and sockets that only record.

``async with world() as w`` boots brokers 1 to 3; ``await w.take_office()`` begins a term in ``w.reign``. Every word
that is told is held against ZooKeeper (:class:`Witness`), and so is the whole model after every event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from brokers.channels import Channels
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall, IsrProposal
from brokers.wire.replies import AllocateProducerIdsReply, AlterPartitionReply, ControlledShutdownReply
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.calls import Calls
from controller.counters import Counters
from controller.daemon import Daemon, Mode
from controller.event_queue import Event
from controller.lease import Lease
from controller.office import Claim, Office
from controller.own_znodes import Process, this_process
from controller.reign import Reign
from metadata_store import paths
from metadata_store.cluster_nodes import create_topic, ensure_top_level_paths
from metadata_store.codecs.broker import encode_broker
from metadata_store.codecs.notifications import encode_partitions
from metadata_store.codecs.state import decode_state, encode_state
from metadata_store.codecs.topic import decode_topic, encode_topic
from metadata_store.errors import Code
from metadata_store.hooks import Kill
from metadata_store.memory import MemoryServer, MemoryZooKeeper
from metadata_store.port import Node, Write
from state_machines.cluster import Cluster, leadership_of
from state_machines.decision import Change, ReplicaMove
from state_machines.types import Assignment, Broker, Endpoint, Leadership, TopicAssignment, TopicPartition
from tests.core.role_kit import settings_for
from tests.core.wire_kit import read_request, unframe
from tests.polling import eventually

DAEMON: Final = 1_000_001
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
SESSION_S: Final = 6.0


class Clock:
    """The lease's clock: stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Script:
    """Write hooks: counts the writes of a session, and does what a test asks before or after one of them."""

    def __init__(self) -> None:
        self.writes: list[list[str]] = []
        self._planned: list[tuple[str, str, Callable[[], Any]]] = []
        self._kill: tuple[int, str] | None = None

    def at(self, path: str, act: Callable[[], Any], *, when: str = "before") -> None:
        """Once, before (or after) the next write of a path that contains ``path``."""
        self._planned.append((path, when, act))

    def kill_at(self, number: int, when: str) -> None:
        """The process dies before or after its ``number``-th write from now on."""
        self.writes.clear()
        self._kill = number, when

    async def before(self, ops: Sequence[Write]) -> None:
        self.writes.append([op.path for op in ops])
        await self._act(ops, "before")

    async def after(self, ops: Sequence[Write]) -> None:
        await self._act(ops, "after")

    async def _act(self, ops: Sequence[Write], when: str) -> None:
        if self._kill == (len(self.writes), when):
            raise Kill
        for planned in list(self._planned):
            path, moment, act = planned
            if moment == when and any(path in op.path for op in ops):
                self._planned.remove(planned)
                done = act()
                if asyncio.iscoroutine(done):
                    await done


class Wires:
    """Every broker's socket: keeps what was sent and answers at once. ``errors``: top-level error by broker."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.errors: dict[int, int] = {}
        self.gate: Callable[[], bool] = lambda: True
        self.sent_while_closed = 0
        self.open = 0

    async def connect(self, host: str, _port: int, _on_lost: Callable[[], None]) -> Wire:
        self.open += 1
        return Wire(self, int(host.rpartition("-")[2]))

    def heard(self, broker: int, api: int | None = None) -> list[Any]:
        """Requests that a broker got, as kio reads them."""
        found = [read_request(frame) for to, frame in self.frames if to == broker]
        return [entity for header, entity in found if api in (None, header.request_api_key)]

    def last_word(self, broker: int, api: int) -> dict[tuple[str, int], tuple[int, int]]:
        """Leader and leader epoch that a broker was last told of each partition."""
        known: dict[tuple[str, int], tuple[int, int]] = {}
        for entity in self.heard(broker, api):
            for topic in entity.topic_states:
                for p in topic.partition_states:
                    known[topic.topic_name, p.partition_index] = p.leader, p.leader_epoch
        return known

    def stopped(self, broker: int) -> set[tuple[str, int]]:
        """Partitions that a broker was told to stop."""
        return {
            (topic.topic_name, p.partition_index)
            for entity in self.heard(broker, STOP_REPLICA)
            for topic in entity.topic_states
            for p in topic.partition_states
        }


class Wire:
    """One connection."""

    def __init__(self, wires: Wires, broker: int) -> None:
        self._wires = wires
        self._broker = broker
        self.closed = False

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        frame = unframe(parts)
        self._wires.frames.append((self._broker, frame))
        self._wires.sent_while_closed += not self._wires.gate()
        api, correlation = int.from_bytes(frame[:2], "big"), frame[4:8]
        error = self._wires.errors.get(self._broker, 0).to_bytes(2, "big")
        await asyncio.sleep(0)
        return correlation + b"\0" + error + (b"\0" if api == UPDATE_METADATA else b"\1\0")

    def close(self) -> None:
        if not self.closed:
            self._wires.open -= 1
        self.closed = True


class Witness(Channels):
    """Channels that check: nothing is told that ZooKeeper does not hold, and the model is never ahead of it."""

    def __init__(self, w: World, cluster: Cluster, *args: Any, **options: Any) -> None:
        super().__init__(cluster, *args, transport=w.wires, **options)
        self.w = w
        self.cluster = cluster
        self.told: list[Change] = []
        self.stops: list[ReplicaMove] = []
        self.snapshots: list[int] = []

    def tell(self, changes: Sequence[Change], moves: Sequence[ReplicaMove]) -> None:
        self.told += changes
        self.stops += [move for move in moves if move.stop]
        self.w.hold_to_account(self.cluster)
        super().tell(changes, moves)

    def snapshot(self, broker_ids: Iterable[int] | None = None) -> None:
        self.snapshots += self._channels if broker_ids is None else broker_ids
        super().snapshot(broker_ids)

    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())


class Seat:
    """One daemon's session and its place in the queue, without the daemon around them."""

    def __init__(self, w: World, *, me: Process | None = None, credentials: str | None = None, hold: bool = False) -> None:
        self.w = w
        self.script = Script()
        self.zk = MemoryZooKeeper(w.server, credentials=credentials, hooks=self.script)
        self.me = me or this_process(DAEMON)
        user, _, password = (credentials or "").partition(":")
        self.office = Office(self.zk, self.me, hold=hold, digest=(user, password) if credentials else None)
        self.lease = Lease(SESSION_S, w.clock)
        self.reign: Reign | None = None
        self.claim: Claim | None = None
        self.running: asyncio.Task[str] | None = None

    async def sit(self) -> Seat:
        """Connects and queues."""
        await self.zk.connect(1.0)
        await self.office.enter_queue()
        self.renew()
        return self

    def renew(self) -> None:
        """A heartbeat was answered now."""
        self.lease.answered(self.w.clock())

    async def begin(self, ibp: str = "3.9") -> Reign:
        """Claims, and begins the term."""
        self.claim = await self.office.claim()
        return self.reign_now(self.claim, ibp, await self.office.daemons())

    def reign_now(self, claim: Claim, ibp: str, daemons: frozenset[int]) -> Reign:
        reign = self.reign = Reign(
            settings=self.w.settings,
            zk=self.zk,
            office=self.office,
            claim=claim,
            lease=self.lease,
            counters=self.w.counters,
            ibp=Ibp.parse(ibp),
            daemons=daemons,
            advertised=("127.0.0.1", 9095),
        )
        self.w.wires.gate = reign.term.open
        self.zk.on_watch, self.zk.on_state = reign.watched, reign.state_changed
        self.zk.on_state_thread = self._at_once
        self.running = asyncio.create_task(reign.run())
        return reign

    def _at_once(self, state: object) -> None:
        if state == "lost" and self.reign is not None:
            self.reign.term.end("the ZooKeeper session is lost")

    async def crash(self) -> None:
        """The process is gone at once, whatever it was at."""
        self.zk.on_watch = self.zk.on_state = self.zk.on_state_thread = None
        if self.running is not None:
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


class World:
    """The cluster. What a test asserts is read from ``states``; what brokers heard from ``wires``."""

    def __init__(self, folder: Path, changes: dict[str, Any]) -> None:
        self.server = MemoryServer()
        self.operator = MemoryZooKeeper(self.server)
        self.clock = Clock()
        self.counters = Counters()
        self.wires = Wires()
        self.settings = settings_for(folder)
        if changes:
            changed = self.settings.controller.model_copy(update=changes)
            self.settings = self.settings.model_copy(update={"controller": changed})
        self.brokers: dict[int, MemoryZooKeeper] = {}
        self.seats: list[Seat] = []
        self.removed: set[tuple[str, int]] = set()

    # -- the cluster

    async def boot(self, *ids: int, port: int = 9093) -> None:
        """Brokers start: each registers with a session of its own."""
        for broker_id in ids:
            zk = self.brokers[broker_id] = MemoryZooKeeper(self.server)
            await zk.connect(1.0)
            await zk.create(paths.broker(broker_id), registration(broker_id, port), ephemeral=True)

    def die(self, *ids: int) -> None:
        """Brokers' sessions expire."""
        for broker_id in ids:
            self.server.expire(self.brokers.pop(broker_id).session_id)

    async def bounce(self, *ids: int) -> None:
        """Brokers restart before anybody looks."""
        self.die(*ids)
        await self.boot(*ids)

    async def topic(
        self,
        name: str,
        *replicas: tuple[int, ...],
        leaders: bool = False,
        topic_id: bytes | None = b"",
        isr: tuple[int, ...] | None = None,
        epoch: int = 3,
    ) -> None:
        """A topic as a broker creates it; ``leaders``: it runs, led by its first replicas. ``topic_id`` None: none."""
        chosen = id_of(name) if topic_id == b"" else topic_id
        await create_topic(self.operator, name, dict(enumerate(replicas)), chosen)
        if leaders:
            await self.operator.create(paths.partitions(name), None)
        for partition, found in enumerate(replicas) if leaders else ():
            await self.operator.create(paths.partition(name, partition), None)
            data = encode_state(found[0], epoch, isr or found, 0)
            await self.operator.create(paths.state(name, partition), data)

    async def expand(self, name: str, *replicas: tuple[int, ...]) -> None:
        """A broker adds partitions."""
        found = self.assignment(name)
        added = {len(found.partitions) + n: Assignment(r) for n, r in enumerate(replicas)}
        data = encode_topic({**found.partitions, **added}, found.topic_id)
        await self.operator.set(paths.topic(name), data, found.version)

    async def delete_topic(self, name: str) -> None:
        """The znodes of a topic vanish."""
        paths_of_topic = sorted((p for p in self.server.tree._nodes if p.startswith(paths.topic(name) + "/")), key=len)
        for path in [*reversed(paths_of_topic), paths.topic(name), paths.topic_config(name)]:
            await self.operator.delete(path, -1)

    async def delete_state(self, name: str, partition: int) -> None:
        """Somebody deletes a state znode by hand."""
        self.removed.add((name, partition))
        await self.operator.delete(paths.state(name, partition), -1)

    async def leader_writes(self, name: str, partition: int, isr: tuple[int, ...], *, notify: bool = False) -> None:
        """A leader changes its ISR in ZooKeeper (IBP below 2.7-IV2)."""
        held = self.states[name, partition]
        data = encode_state(held.leader, held.leader_epoch, isr, held.controller_epoch, held.recovering)
        await self.operator.set(paths.state(name, partition), data, held.version)
        if notify:
            await self.notify(TopicPartition(name, partition))

    async def notify(self, *partitions: TopicPartition) -> None:
        """A leader tells the controller of it."""
        data = encode_partitions(partitions)
        await self.operator.create(f"{paths.ISR_CHANGES}/isr_change_", data, sequential=True)

    async def seize(self, broker_id: int = 1) -> None:
        """A broker is elected controller, whoever was before."""
        epoch = await self.operator.get(paths.CONTROLLER_EPOCH)
        assert epoch is not None
        await self.operator.set(paths.CONTROLLER_EPOCH, b"%d" % (int(epoch.data or b"0") + 1), epoch.stat.version)
        if await self.operator.exists(paths.CONTROLLER) is not None:
            await self.operator.delete(paths.CONTROLLER, -1)
        await self.operator.create(paths.CONTROLLER, b'{"version":2,"brokerid":%d,"timestamp":"0"}' % broker_id)

    # -- looking

    def node(self, path: str) -> Node | None:
        """A znode as it is now."""
        found = self.server.tree.node(path, frozenset({("world", "anyone")}))
        return None if isinstance(found, Code) else found

    @property
    def states(self) -> dict[tuple[str, int], Leadership]:
        """Every state znode that can be read."""
        found: dict[tuple[str, int], Leadership] = {}
        for path in self.server.tree._nodes:
            if path.startswith(f"{paths.TOPICS}/") and path.endswith("/state"):
                node = self.node(path)
                assert node is not None
                state = decode_state(node.data, node.stat.version)
                if isinstance(state, Leadership):
                    found[path.split("/")[3], int(path.split("/")[5])] = state
        return found

    def led(self) -> dict[tuple[str, int], tuple[int, tuple[int, ...]]]:
        """Leader and ISR of every partition."""
        return {name: (state.leader, state.isr) for name, state in self.states.items()}

    def assignment(self, name: str) -> TopicAssignment:
        """A topic znode."""
        node = self.node(paths.topic(name))
        assert node is not None
        found = decode_topic(paths.topic(name), name, node.data, node.stat.version, node.stat.czxid)
        assert isinstance(found, TopicAssignment)
        return found

    def assignments(self) -> dict[str, dict[int, tuple[int, ...]]]:
        """Replicas of every topic."""
        names = self.server.tree._nodes[paths.TOPICS].children
        return {n: {p: a.replicas for p, a in self.assignment(n).partitions.items()} for n in names}

    def hold_to_account(self, cluster: Cluster) -> None:
        """The model is what ZooKeeper holds, or older."""
        held = self.states
        for index in cluster.topic_index.values():
            for i in cluster.topics[index].rows:
                known, there = leadership_of(cluster.rows[i]), held.get(cluster.name(i))
                if known is None or cluster.name(i) in self.removed:
                    continue
                if there is None:
                    assert self.node(paths.topic(cluster.name(i).topic)) is None, f"{cluster.name(i)} was never written"
                    continue
                assert known.version <= there.version, f"{cluster.name(i)}: the model is ahead of ZooKeeper"
                assert known.version < there.version or known == there, f"{cluster.name(i)}: same version, other content"

    def agreed(self) -> None:
        """Model and ZooKeeper are equal, partition by partition."""
        cluster = self.reign.cluster
        names = [cluster.name(i) for index in cluster.topic_index.values() for i in cluster.topics[index].rows]
        known = {name: leadership_of(cluster.rows[i]) for name in names if (i := cluster.find(*name)) is not None}
        assert {name: state for name, state in known.items() if state is not None} == self.states

    # -- terms

    async def seat(self, **options: Any) -> Seat:
        """A daemon that queues for the role; the role is regent's."""
        seat = Seat(self, **options)
        self.seats.append(seat)
        await seat.sit()
        await seat.office.set_role("regent", "a test")
        return seat

    async def take_office(self, ibp: str = "3.9", **options: Any) -> Reign:
        """A daemon claims and is in office; everything that led to is handled."""
        seat = await self.seat(**options)
        await seat.begin(ibp)
        await self.settle()
        return self.reign

    @property
    def active(self) -> Seat:
        """The seat of the last daemon that began a term."""
        return next(seat for seat in reversed(self.seats) if seat.reign is not None)

    @property
    def reign(self) -> Reign:
        """The present term."""
        assert self.active.reign is not None
        return self.active.reign

    @property
    def witness(self) -> Witness:
        """The present term's channels."""
        channels = self.reign.channels
        assert isinstance(channels, Witness)
        return channels

    async def give_role_to(self, holder: str) -> None:
        """Sets the flag, as an operator's command does."""
        await Office(self.operator, this_process(DAEMON), hold=False, digest=None).set_role(holder, "a test")

    async def settle(self) -> None:
        """Until every event so far, and what followed from it, is handled, or the term is over."""
        reign, running = self.reign, self.active.running
        assert running is not None
        await asyncio.wait({asyncio.ensure_future(reign.in_office.wait()), running}, return_when=asyncio.FIRST_COMPLETED)
        quiet = 0
        while quiet < 3 and not running.done() and not reign.term.ended:
            handled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            reign.queue.post(Event("settled", handled, preempt=partial(_cancel, handled)))
            await asyncio.wait({handled, running}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
            quiet = 0 if len(reign.queue) or reign.handling else quiet + 1
        if running.done() and not running.cancelled() and running.exception() is None:
            return
        if not running.done():
            self.hold_to_account(reign.cluster)

    async def told(self) -> None:
        """Until every broker has acknowledged everything."""
        await self.settle()
        behind = await self.reign.channels.quiesced(5.0)
        assert not behind, f"brokers {sorted(behind)} are behind"

    # -- calls of brokers

    async def alter_partition(self, broker: int, *proposals: IsrProposal, version: int = 3, epoch: int | None = None) -> AlterPartitionReply:
        """A leader's call, answered."""
        return await Calls(self.reign.queue).alter_partition(
            AlterPartitionCall(version, broker, self.broker_epoch(broker) if epoch is None else epoch, proposals)
        )

    async def controlled_shutdown(self, broker: int, epoch: int | None = None) -> ControlledShutdownReply:
        """A broker asks to stop."""
        return await Calls(self.reign.queue).controlled_shutdown(
            ControlledShutdownCall(3, broker, self.broker_epoch(broker) if epoch is None else epoch)
        )

    async def producer_ids(self, broker: int, epoch: int | None = None) -> AllocateProducerIdsReply:
        """A broker asks for a block of producer ids."""
        return await Calls(self.reign.queue).allocate_producer_ids(
            AllocateProducerIdsCall(0, broker, self.broker_epoch(broker) if epoch is None else epoch)
        )

    def broker_epoch(self, broker: int) -> int:
        """czxid of the registration."""
        node = self.node(paths.broker(broker))
        return node.stat.czxid if node is not None else -1

    def proposal(self, name: str, number: int, /, isr: tuple[int, ...], **changes: Any) -> IsrProposal:
        """What the leader would ask for, by topic id, with the epochs that ZooKeeper holds."""
        held = self.states.get((name, number))
        fields: dict[str, Any] = {
            "topic": id_of(name), "partition": number, "isr": isr, "recovering": False,
            "leader_epoch": held.leader_epoch if held else 0, "partition_epoch": held.version if held else 0,
        }  # fmt: skip
        return IsrProposal(**(fields | changes))


def id_of(name: str) -> bytes:
    """The topic id that a topic gets here."""
    return name.encode().ljust(16, b".")[:16]


def registration(broker_id: int, port: int = 9093, rack: str | None = None) -> bytes:
    """A broker's znode; the host tells :class:`Wires` whose it is."""
    endpoints = (Endpoint("INTERNAL", f"broker-{broker_id}", port), Endpoint("CLIENT", f"broker-{broker_id}", port + 1))
    return encode_broker(Broker(broker_id, 0, endpoints, rack), timestamp_ms=0)


def _cancel(waiting: asyncio.Future[None]) -> None:
    waiting.cancel()


@asynccontextmanager
async def world(*ids: int, folder: Path = Path("/nowhere"), **changes: Any) -> AsyncIterator[World]:
    """A booted cluster; ``changes`` are settings of the section ``controller``. Whoever still serves dies at the end."""
    w = World(folder, changes)
    quick = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)
    with mock.patch("controller.reign.Channels", partial(Witness, w)), mock.patch("controller.handlers.failover.gc", quick):
        await w.operator.connect(1.0)
        await ensure_top_level_paths(w.operator)
        await w.boot(*(ids or (1, 2, 3)))
        try:
            yield w
        finally:
            for seat in w.seats:
                await seat.crash()


class DaemonRun:
    """A whole daemon on the world's ZooKeeper, its lease on the loop's clock."""

    def __init__(self, w: World, settings: Settings) -> None:
        self.w = w
        self.script = Script()
        self.sessions: list[MemoryZooKeeper] = []
        self.daemon = Daemon(settings, self._connect, new_lease=loop_lease)
        self.task = asyncio.create_task(self.daemon.run())

    def _connect(self) -> MemoryZooKeeper:
        digest = self.daemon.settings.zookeeper.digest
        credentials = digest.get_secret_value() if digest is not None else None
        self.sessions.append(MemoryZooKeeper(self.w.server, credentials=credentials, hooks=self.script))
        return self.sessions[-1]

    @property
    def session(self) -> int:
        """Id of the present session."""
        return self.sessions[-1].session_id

    @property
    def epoch_open(self) -> int | None:
        """The epoch in which it would write or send now."""
        reign = self.daemon.reign
        return reign.claim.epoch if reign is not None and reign.term.open() else None

    async def in_office(self) -> Reign:
        """Waits until it is active."""
        await eventually(lambda: self.daemon.mode is Mode.ACTIVE and self.daemon.reign is not None)
        assert self.daemon.reign is not None
        return self.daemon.reign

    async def says(self, text: str) -> None:
        """Waits until its reason has a text in it."""
        try:
            await eventually(lambda: text in self.daemon.why)
        except AssertionError:
            raise AssertionError(f"it says {self.daemon.mode}: {self.daemon.why}") from None

    async def stop(self, within_s: float = 10.0) -> None:
        """A clean stop; ``within_s`` counts on the loop's clock."""
        self.daemon.stop()
        await asyncio.wait_for(self.task, within_s)

    async def crash(self) -> None:
        """kill -9."""
        for zk in self.sessions:
            zk.on_watch = zk.on_state = zk.on_state_thread = None
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task})
        for zk in self.sessions:
            if zk.session_id in self.w.server._sessions:
                self.w.server.expire(zk.session_id)


def loop_lease(session_timeout_s: float, fraction: float) -> Lease:
    """A lease on the event loop's clock."""
    return Lease(session_timeout_s, asyncio.get_running_loop().time, fraction)


@asynccontextmanager
async def daemon(w: World, controller_id: int = DAEMON, *, hold: bool = False) -> AsyncIterator[DaemonRun]:
    """A running daemon, killed at the end if it still runs."""
    settings = settings_for(Path("/nowhere"), hold=hold, digest="regent:secret" if hold else None)
    chosen = settings.controller.model_copy(update={"id": controller_id})
    run = DaemonRun(w, settings.model_copy(update={"controller": chosen}))
    try:
        yield run
    finally:
        await run.crash()
