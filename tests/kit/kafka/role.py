"""Simulates a Kafka cluster for operations on the role: ZooKeeper in memory, and brokers that register and elect.

A :class:`MiniBroker` receives the controller's requests on a real socket and keeps the content of UpdateMetadata;
operators query that content without a socket. When ``/controller`` vanishes the brokers elect as Kafka's do: one multi
creates it and raises the epoch, and a broker that is locked out stays passive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from brokers.client import BrokerCallFailed, ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from brokers.queries import BrokerQueries, Dial
from brokers.wire.log_dirs import REPLICAS_MAX
from brokers.wire.versions import Api
from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.daemon.preflight.context import IBP, Context, Finding, PreflightReport, gather
from controller.daemon.preflight.run import preflight
from controller.daemon.state import Mode
from controller.daemon.takeover import Takeover, role_of, take_over
from controller.role.claim import Role
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.acl import Acl
from metadata_store.codecs.cluster import encode_broker, encode_cluster_id
from metadata_store.errors import MultiFailed, OutcomeUnknown, ZooKeeperError
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.port import Kill, WatchEvent, Write
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.model.types import Broker, Endpoint, LogDirectory, ReplicaLog
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.znodes import create_topic, elect, states
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import UPDATE_METADATA, FakeBroker
from tests.kit.kafka.parts import SECRET

CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"
DAEMON = 1_000_001
STATIC_BROKER_CONFIG = 4
DIGEST = "regent:secret"
ALL_VERSIONS: dict[int, tuple[int, int]] = {
    Api.LEADER_AND_ISR: (0, 7),
    Api.STOP_REPLICA: (0, 4),
    Api.UPDATE_METADATA: (0, 8),
    Api.ALLOCATE_PRODUCER_IDS: (0, 0),
}
CONFIGS = {
    IBP: "3.9-IV0",
    "inter.broker.listener.name": "INTERNAL",
    "zookeeper.set.acl": "false",
    "unclean.leader.election.enable": "false",
    "controller.socket.timeout.ms": "10000",
    "reserved.broker.max.id": "1000",
    "min.insync.replicas": "2",
}


class MiniBroker(FakeBroker):
    """Simulates a broker. ``silent``: why it does not respond to queries; ``deaf``: it drops new metadata."""

    def __init__(self, broker_id: int, server: MemoryServer, rack: str | None = None) -> None:
        super().__init__(broker_id, rack=rack)
        self.zk = MemoryZooKeeper(server)
        self.client_listener: str | None = "CLIENT"
        self.host = "127.0.0.1"
        self.protocol = 0
        self.api_versions: dict[int, tuple[int, int]] = dict(ALL_VERSIONS)
        self.configs: dict[str, str | None] = dict(CONFIGS)
        self.dirs: dict[str, int] = {"/data": 0}
        self.dirs_refused = ""
        self.logs: list[ReplicaLog] = []
        """Logs in each of ``dirs``; ``reports`` counts the requests for them."""
        self.reports = 0
        self.cluster_id = CLUSTER_ID
        self.controller_id = -1
        self.live: frozenset[int] = frozenset()
        self.topics: dict[str, TopicMetadata] = {}
        self.silent = ""
        self.deaf = False
        self.elects = True
        self.respond = self._receive

    def registration(self) -> Broker:
        """Returns its registration."""
        endpoints = [Endpoint("INTERNAL", self.host, self.port, self.protocol)]
        if self.client_listener is not None:
            endpoints.append(Endpoint(self.client_listener, self.host, 1))
        return Broker(self.id, self.epoch, tuple(endpoints), self.rack)

    async def register(self) -> None:
        """Registers in ZooKeeper, and takes the role where no broker holds it."""
        await self.zk.connect(1.0)
        data = encode_broker(self.registration(), timestamp_ms=0)
        created = await self.zk.create(paths.broker(self.id), data, ephemeral=True)
        self.epoch = created.stat.czxid
        self.zk.on_watch = self._watched
        await self._follow_controller()

    # -- election, as in Kafka's brokers

    def _watched(self, event: WatchEvent) -> None:
        if event.path == paths.CONTROLLER:
            self._following = asyncio.get_running_loop().create_task(self._follow_controller())

    async def _follow_controller(self) -> None:
        try:
            since = self.zk.last_zxid
            node = await self.zk.get(paths.CONTROLLER)
            if node is None and self.elects:
                await self._elect()
                node = await self.zk.get(paths.CONTROLLER)
            watched = [paths.CONTROLLER]
            if node is None:
                await self.zk.watch(exists=watched, since_zxid=since)
            else:
                await self.zk.watch(data=watched, since_zxid=since)
        except ZooKeeperError:
            return

    async def _elect(self) -> None:
        try:
            await elect(self.zk, self.id)
        except MultiFailed:
            return
        for peer in self.peers():
            peer.learn_controller(self.id)

    def peers(self) -> Iterable[MiniBroker]:
        """Returns the brokers that learn of its election; the cluster replaces this method."""
        return [self]

    def learn_controller(self, controller: int) -> None:
        """Receives the id of the controller from Kafka's own one."""
        if not self.deaf:
            self.controller_id = controller
            self.live = frozenset(peer.id for peer in self.peers())

    # -- requests of the daemon

    def _receive(self, api: int, entity: Any) -> dict[str, Any]:
        if api == UPDATE_METADATA and not self.deaf:
            self.controller_id = int(entity.controller_id)
            self.live = frozenset(int(broker.id_) for broker in entity.live_brokers)
            for topic in entity.topic_states:
                self._learn(topic)
        return {}

    def _learn(self, topic: Any) -> None:
        known = dict(self.topics[topic.topic_name].partitions) if topic.topic_name in self.topics else {}
        for p in topic.partition_states:
            if p.leader == -2:
                known.pop(p.partition_index, None)
                continue
            leader = int(p.leader) if p.leader in self.live else -1
            known[p.partition_index] = PartitionMetadata(
                0, leader, p.leader_epoch, ints(p.replicas), ints(p.isr), ints(p.offline_replicas)
            )
        topic_id = topic.topic_id.bytes if topic.topic_id else None
        self.topics[topic.topic_name] = TopicMetadata(0, topic_id, known)
        if not known:
            del self.topics[topic.topic_name]

    # -- queries of operators

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        wanted = self.topics if topics is None else {t: self.topics[t] for t in topics if t in self.topics}
        nodes = tuple(Node(b, "127.0.0.1", 1, None) for b in sorted(self.live))
        return ClusterMetadata(self.cluster_id, self.controller_id, nodes, wanted)

    async def broker_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        if broker_id != self.id:
            raise BrokerCallFailed(f"unexpected broker id {broker_id}")
        return {name: value for name, value in self.configs.items() if names is None or name in names}

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        found = await self.broker_configs(broker_id, names)
        return {name: Setting(value, STATIC_BROKER_CONFIG) for name, value in found.items()}

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        return await self.broker_configs(broker_id, names)

    async def log_dirs(self) -> dict[str, int]:
        if self.dirs_refused:
            raise BrokerCallFailed(self.dirs_refused)
        return dict(self.dirs)

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
    ) -> tuple[LogDirectory, ...]:
        self.reports += 1
        wanted = [log for log in self.logs if partitions is None or log.partition in partitions.get(log.topic, ())]
        found = (await self.log_dirs()).items()
        return tuple(LogDirectory(path, error, tuple(wanted)) for path, error in found)

    async def offsets(
        self, partitions: Mapping[str, Collection[int]], *, earliest: bool = False
    ) -> dict[tuple[str, int], int | str]:
        return {(topic, p): 10 * p + 5 * (not earliest) for topic, numbers in partitions.items() for p in numbers}


def ints(found: Iterable[Any]) -> tuple[int, ...]:
    """Converts kio's numbers."""
    return tuple(int(broker) for broker in found)


class Kafka:
    """Holds the cluster. ``operator`` is a session of its own, ``settings`` belong to the first daemon."""

    def __init__(self, folder: Path, *, hold: bool, digest: str | None) -> None:
        self.server = MemoryServer()
        self.brokers: dict[int, MiniBroker] = {}
        self.operator = MemoryZooKeeper(self.server, credentials=digest)
        self.settings = settings_for(folder, hold=hold, digest=digest)
        self.release: tuple[int, int] | None = (3, 8)

    def gives_up_soon(self) -> None:
        """Has hand-backs by daemons that start from now on fail after a second."""
        self.change("controller", handback_timeout_ms=1_000)

    def change(self, section: str, **values: object) -> None:
        """Changes keys of one section of the settings."""
        self.settings = changed(self.settings, section, **values)

    async def boot(self, count: int) -> None:
        """Starts brokers 1 to ``count``; one of them becomes the controller."""
        await self.operator.connect(1.0)
        await ensure_top_level_paths(self.operator)
        await self.operator.create(paths.CLUSTER, None)
        await self.operator.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID))
        for broker_id in range(1, count + 1):
            await self.add(broker_id)
        for broker in self.brokers.values():
            broker.learn_controller(await self.controller() or -1)

    async def add(self, broker_id: int, rack: str | None = None) -> MiniBroker:
        """Starts another broker."""
        broker = self.brokers[broker_id] = MiniBroker(broker_id, self.server, rack)
        broker.peers = self.brokers.values  # type: ignore[method-assign]
        await broker.listen()
        await broker.register()
        return broker

    async def again(self, broker_id: int, **changes: object) -> MiniBroker:
        """Registers a broker anew with changed attributes, as after a restart."""
        broker = self.brokers[broker_id]
        for name, value in changes.items():
            setattr(broker, name, value)
        await broker.zk.close()
        await broker.register()
        return broker

    async def topic(self, name: str, *replicas: tuple[int, ...], leaders: bool = True) -> None:
        """Creates a topic with an id, by default with the first replicas as leaders."""
        await create_topic(self.operator, name, dict(enumerate(replicas)), bytes(15) + bytes([len(name)]))
        running = replicas if leaders else ()
        await self.operator.multi(states(name, running, leader_epoch=3, controller_epoch=1))

    async def controller(self) -> int | None:
        """Reads the id in ``/controller``."""
        found, _ = await self.role().controller()
        return found.broker if found is not None else None

    async def epoch(self) -> int:
        """Reads the controller epoch."""
        node = await self.operator.get(paths.CONTROLLER_EPOCH)
        assert node is not None
        return int(node.data or b"")

    def role(self, zk: MemoryZooKeeper | None = None) -> Role:
        """Returns the role as an operator's command sees it."""
        return role_of(self.settings, zk or self.operator)

    @property
    def dial(self) -> Dial:
        """Returns a dial whose queries need no sockets."""

        @asynccontextmanager
        async def dial(broker: Broker) -> AsyncIterator[BrokerQueries]:
            found = self.brokers[broker.id]
            if found.silent:
                raise BrokerCallFailed(found.silent)
            yield found

        return dial

    async def release_of(self, _host: str, _port: int) -> tuple[int, int] | None:
        return self.release

    async def context(self, *, own_listener: bool = False) -> Context:
        """Gathers the facts of a preflight."""
        return await gather(self.settings, self.role(), self.dial, self.release_of, own_listener=own_listener)

    async def preflight(self) -> PreflightReport:
        """Runs every check."""
        return await preflight(await self.context())

    async def finding(self, name: str) -> Finding:
        """Returns the finding of one check."""
        [found] = [f for f in (await self.preflight()).findings if f.name == name]
        return found

    async def take_over(
        self, reason: str = "a test", *, dry_run: bool = False, zk: MemoryZooKeeper | None = None
    ) -> Takeover:
        """Takes the role over as 'regent takeover' does."""
        return await take_over(
            self.settings,
            self.role(zk),
            dial=self.dial,
            release_of=self.release_of,
            reason=reason,
            by="uid 0",
            dry_run=dry_run,
        )

    @asynccontextmanager
    async def daemon(
        self, *, shadow: bool = False, queries: bool = False, secret_file: Path | None = None, **changes: Any
    ) -> AsyncIterator[Daemon]:
        """Runs a daemon and stops it at the end; ``changes`` replace sections of its settings.

        With a ``secret_file`` its only secret is the content of that file. ``queries``: its terms query brokers.
        """
        chosen = self.settings.model_copy(update=changes)
        digest = chosen.zookeeper.digest
        credentials = digest.get_secret_value() if digest is not None else None
        daemon = Daemon(
            chosen,
            lambda: MemoryZooKeeper(self.server, credentials=credentials),
            shadow=shadow,
            dial=self.dial if queries else None,
            secret=SECRET if secret_file is None else None,
            secret_file=secret_file,
        )
        task = asyncio.create_task(daemon.run())
        try:
            await eventually(lambda: daemon.mode is Mode.SHADOW if shadow else _queues(daemon))
            yield daemon
        finally:
            daemon.stop()
            await asyncio.wait_for(task, 60)

    @asynccontextmanager
    async def active(self) -> AsyncIterator[Daemon]:
        """Runs a daemon that has taken the role over."""
        async with self.daemon() as daemon:
            await self.take_over()
            await self.serving(daemon)
            yield daemon

    async def hold_by_dead_daemon(self) -> None:
        """Lets a daemon take the role in mode ``hold`` and end."""
        async with self.active():
            pass
        assert await self.controller() == DAEMON

    def stop_elections(self) -> None:
        """Lets no broker elect itself any more."""
        for broker in self.brokers.values():
            broker.elects = False

    async def flag(self) -> RoleFlag:
        """Reads the role flag."""
        return (await self.role().flag())[0]

    async def epoch_acls(self) -> list[Acl]:
        """Reads the ACLs of the controller epoch."""
        return (await self.operator.get_acls(paths.CONTROLLER_EPOCH))[0]

    async def serving(self, daemon: Daemon) -> None:
        """Waits until the daemon is the controller and the metadata of every broker names it."""
        await eventually(lambda: daemon.term is not None and daemon.term.serving.is_set())
        me = daemon.settings.controller.id
        await eventually(lambda: all(b.controller_id == me for b in self.brokers.values() if not b.deaf))

    def snapshot(self) -> dict[str, tuple[bytes | None, int, int]]:
        """Returns every znode with its data, version and ACL version, to compare for writes."""
        nodes = self.server.tree._nodes
        return {path: (node.data, node.version, node.acl_version) for path, node in nodes.items()}


class KilledAt:
    """Hooks of a session that dies before or after its n-th write from now on, or loses the reply to that write."""

    def __init__(self, write: int, when: str) -> None:
        self.left = write
        self.when = when

    async def before(self, ops: Sequence[Write]) -> None:
        self.left -= 1
        if self.left == 0 and self.when == "before":
            raise Kill

    async def after(self, ops: Sequence[Write]) -> None:
        if self.left == 0 and self.when == "after":
            raise Kill
        if self.left == 0 and self.when == "reply lost":
            raise OutcomeUnknown("the reply is lost")


def _queues(daemon: Daemon) -> bool:
    return daemon.role is not None and daemon.role.position_path is not None


def settings_for(
    folder: Path, *, hold: bool = False, digest: str | None = None, controller_id: int = DAEMON
) -> Settings:
    """Creates the settings of a daemon."""
    return Settings.model_validate(
        {
            "zookeeper": {"connect": "127.0.0.1:2181", "digest": digest},
            "controller": {
                "id": controller_id, "on_absence": "hold" if hold else "brokers", "drain_timeout_ms": 2_000,
                "handback_timeout_ms": 60_000,
            },
            "listener": {"host": "127.0.0.1", "port": 0, "advertised_host": "127.0.0.1"},
            "state": {"directory": str(folder / "state")},
        }
    )  # fmt: skip


def changed(settings: Settings, section: str, **values: object) -> Settings:
    """Returns the settings with other values in one section."""
    return settings.model_copy(update={section: getattr(settings, section).model_copy(update=values)})


@asynccontextmanager
async def kafka(
    folder: Path, brokers: int = 3, *, hold: bool = False, digest: str | None = None
) -> AsyncIterator[Kafka]:
    """Boots a cluster and closes everything at the end."""
    made = Kafka(folder, hold=hold, digest=digest or (DIGEST if hold else None))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_close, made)
        await made.boot(brokers)
        yield made


async def _close(made: Kafka) -> None:
    for broker in made.brokers.values():
        broker.elects = False
        await broker.stop_listening()
        await broker.zk.close()
    await made.operator.close()
