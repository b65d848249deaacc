"""The cluster of the controller's world as ZooKeeper has it: events of brokers and clients, and content of znodes."""

from __future__ import annotations

from metadata_store import paths
from metadata_store.acl import READ, Acl
from metadata_store.codecs.cluster import encode_broker, encode_config
from metadata_store.codecs.notifications import encode_config_change, encode_log_dir_event, encode_partitions
from metadata_store.codecs.topic import decode_state, decode_topic, encode_state
from metadata_store.errors import Code
from metadata_store.port import Node
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.types import (
    Broker,
    Endpoint,
    Leadership,
    PartitionState,
    TopicAssignment,
    TopicPartition,
)
from testing import znodes
from testing.memory import MemoryServer, MemoryZooKeeper


class Kafka:
    """Acts as ZooKeeper, brokers, leaders, operators and other controllers."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.operator = MemoryZooKeeper(self.server)
        self.brokers: dict[int, MemoryZooKeeper] = {}
        self.removed: set[tuple[str, int]] = set()

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
        led_by: int | None = None,
    ) -> None:
        """Creates a topic as a broker does; ``leaders``: it runs, led by its first replicas or by ``led_by``.

        ``topic_id`` None: none.
        """
        chosen = id_of(name) if topic_id == b"" else topic_id
        await znodes.create_topic(self.operator, name, dict(enumerate(replicas)), chosen)
        if leaders:
            await self.operator.multi(znodes.states(name, replicas, leader=led_by, isr=isr, leader_epoch=epoch))

    async def expand(self, name: str, *replicas: tuple[int, ...]) -> None:
        """A broker adds partitions."""
        await znodes.expand_topic(self.operator, name, *replicas)

    async def delete_topic(self, name: str) -> None:
        """The znodes of a topic vanish."""
        paths_of_topic = sorted((p for p in self.server.tree._nodes if p.startswith(paths.topic(name) + "/")), key=len)
        for path in [*reversed(paths_of_topic), paths.topic(name), paths.topic_config(name)]:
            await self.operator.delete(path, -1)

    async def mark(self, *names: str) -> None:
        """Creates the markers of deletions."""
        for name in names:
            await self.operator.create(paths.deletion(name), None)

    async def delete_state(self, name: str, partition: int) -> None:
        """Deletes a state znode as an operator by hand."""
        self.removed.add((name, partition))
        await self.operator.delete(paths.state(name, partition), -1)

    async def leader_writes(self, name: str, partition: int, isr: tuple[int, ...], *, notify: bool = False) -> None:
        """A leader changes its ISR in ZooKeeper (IBP below 2.7-IV2)."""
        held = self.states[name, partition]
        data = encode_state(held.leader, held.leader_epoch, isr, held.controller_epoch, held.recovering)
        await self.operator.set(paths.state(name, partition), data, held.version)
        if notify:
            await self.notify(TopicPartition(name, partition))

    async def configure(self, kind: str, name: str, /, **entries: str) -> None:
        """Changes a dynamic configuration as Kafka's tools do: the entity first, then a notification."""
        path = paths.config(kind, name)
        data = encode_config({key.replace("_", "."): value for key, value in entries.items()})
        if await self.operator.exists(path) is None:
            await self.operator.create(path, data)
        else:
            await self.operator.set(path, data, -1)
        note = encode_config_change(f"{kind}/{name}")
        await self.operator.create(paths.CONFIG_CHANGE_PREFIX, note, sequential=True)

    async def request_preferred(self, *partitions: tuple[str, int]) -> None:
        """Requests preferred elections as an old tool does."""
        data = encode_partitions(TopicPartition(*name) for name in partitions)
        await self.operator.create(paths.PREFERRED_ELECTION, data)

    async def log_directory_fails(self, broker_id: int) -> None:
        """Creates the notification of a broker whose log directory failed."""
        await self.operator.create(
            f"{paths.LOG_DIR_EVENTS}/log_dir_event_", encode_log_dir_event(broker_id), sequential=True
        )

    async def notify(self, *partitions: TopicPartition) -> None:
        """Creates the notification of a leader that changed ISRs."""
        data = encode_partitions(partitions)
        await self.operator.create(f"{paths.ISR_CHANGES}/isr_change_", data, sequential=True)

    async def touch(self, path: str) -> None:
        """Writes a znode's own data again: only its version changes."""
        node = self.node(path)
        assert node is not None
        await self.operator.set(path, node.data, -1)

    async def seize(self, broker_id: int = 1) -> None:
        """Elects a broker controller."""
        if await self.operator.exists(paths.CONTROLLER) is not None:
            await self.operator.delete(paths.CONTROLLER, -1)
        await znodes.elect(self.operator, broker_id)

    def restrict(self, path: str, rights: int = READ) -> None:
        """Leaves every client these rights on a znode; no watch fires."""
        self.server.tree._nodes[path].acls = (Acl(rights, "world", "anyone"),)

    # -- looking

    def children(self, path: str) -> list[str]:
        """Names of the children of a znode, in order."""
        return sorted(self.server.tree._nodes[path].children)

    def notifications(self) -> list[bytes]:
        """Contents of the notifications of changed configurations, in order."""
        found = [self.node(f"{paths.CONFIG_CHANGES}/{name}") for name in self.children(paths.CONFIG_CHANGES)]
        return [node.data or b"" for node in found if node is not None]

    def node(self, path: str) -> Node | None:
        """Reads a znode."""
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

    def leaders(self) -> dict[tuple[str, int], tuple[int, tuple[int, ...]]]:
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
        names = self.children(paths.TOPICS)
        return {n: {p: a.replicas for p, a in self.assignment(n).partitions.items()} for n in names}

    def znodes_of(self, name: str) -> list[str]:
        """Lists the znodes of a topic."""
        last = (paths.topic(name), paths.topic_config(name), paths.deletion(name))
        return [p for p in self.server.tree._nodes if p in last or p.startswith(paths.topic(name) + "/")]

    def check_model(self, cluster: Cluster) -> None:
        """Checks that the model equals ZooKeeper, or is older."""
        held = self.states
        for index in cluster.topic_index.values():
            for i in cluster.topics[index].rows:
                known, there = leadership_of(cluster.rows[i]), held.get(cluster.name(i))
                deleted = cluster.rows[i].state is PartitionState.NON_EXISTENT
                if known is None or deleted or cluster.name(i) in self.removed:
                    continue
                if there is None:
                    assert self.node(paths.topic(cluster.name(i).topic)) is None, f"{cluster.name(i)} was never written"
                    continue
                assert known.version <= there.version, f"{cluster.name(i)}: the model is ahead of ZooKeeper"
                assert known.version < there.version or known == there, (
                    f"{cluster.name(i)}: same version, other content"
                )


def id_of(name: str) -> bytes:
    """The topic id that a topic gets here."""
    return name.encode().ljust(16, b".")[:16]


def registration(broker_id: int, port: int = 9093, rack: str | None = None) -> bytes:
    """Encodes a broker's znode; :class:`tests.kit.kafka.parts.Wires` finds the broker by the host."""
    endpoints = (Endpoint("INTERNAL", f"broker-{broker_id}", port), Endpoint("CLIENT", f"broker-{broker_id}", port + 1))
    return encode_broker(Broker(broker_id, 0, endpoints, rack), timestamp_ms=0)
