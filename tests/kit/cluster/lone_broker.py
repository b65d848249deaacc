"""Runs one real broker without a controller: a bare znode holds the role, and only tests send requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from brokers.client import BrokerClient
from brokers.transport import Connection, TcpTransport
from metadata_store import paths
from metadata_store.codecs.controller import ControllerZnode, encode_controller
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.port import ANY_VERSION
from testing.embedded.cluster import EmbeddedCluster
from testing.embedded.kafka import EmbeddedBroker
from tests.contracts.broker_support import Known
from tests.kit.deadlines import eventually


class LoneBroker:
    """Implements the subject of the contracts of brokers."""

    def __init__(self, broker: EmbeddedBroker, zk: KazooZooKeeper) -> None:
        self.epoch = 0
        self._broker = broker
        self._zk = zk
        self._connection: Connection | None = None
        self._failed: list[Path] = []

    async def start(self) -> None:
        await self._broker.boot()
        registered = await self._zk.exists(paths.broker(1))
        assert registered is not None
        self.epoch = registered.czxid
        self._connection = await TcpTransport().connect("127.0.0.1", self._broker.internal_port, lambda: None)

    async def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        await self._broker.stop()

    async def exchange(self, frame: bytes) -> bytes:
        assert self._connection is not None
        return await self._connection.exchange([len(frame).to_bytes(4, "big"), frame])

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _client(self) -> BrokerClient:
        return await BrokerClient.connect("127.0.0.1", self._broker.internal_port)

    async def metadata(self, topic: str) -> tuple[bytes | None, dict[int, Known]]:
        async with await self._client() as client:
            [found] = (await client.metadata([topic])).topics.values()
        partitions = found.partitions.items()
        return found.topic_id, {p: Known(m.leader, m.leader_epoch, m.isr, m.replicas) for p, m in partitions}

    async def live(self) -> tuple[int, frozenset[int]]:
        async with await self._client() as client:
            found = await client.metadata([])
        return found.controller_id, frozenset(node.id for node in found.nodes)

    async def fail_log(self, topic: str, partition: int) -> None:
        [log] = self._broker.folder.glob(f"data-*/{topic}-{partition}")
        directory = log.parent
        directory.rename(directory.with_suffix(".away"))
        directory.write_text("not a directory any more", encoding="utf-8")
        self._failed.append(directory)
        await eventually(self._noticed, 30.0)

    async def _noticed(self) -> bool:
        listed = await self._zk.children(paths.LOG_DIR_EVENTS)
        return listed is not None and bool(listed[0])

    async def repair_logs(self) -> None:
        await self.stop()
        for directory in self._failed:
            directory.unlink()
            directory.with_suffix(".away").rename(directory)
        self._failed.clear()
        listed = await self._zk.children(paths.LOG_DIR_EVENTS)
        for name in listed[0] if listed else []:
            await self._zk.delete(f"{paths.LOG_DIR_EVENTS}/{name}", ANY_VERSION)
        await self.start()


@asynccontextmanager
async def lone_broker(zookeeper_claim: int, properties: Mapping[str, str]) -> AsyncIterator[LoneBroker]:
    """Boots a broker with id 1; ``/controller`` names ``zookeeper_claim``."""
    options = {"properties": {"controlled.shutdown.enable": "false", **properties}}
    async with EmbeddedCluster(1, start_brokers=False, broker_options=options) as cluster:
        zk = KazooZooKeeper(cluster.connect, session_timeout_ms=20_000)
        await zk.connect(20.0)
        try:
            await ensure_top_level_paths(zk)
            await zk.create(paths.CONTROLLER, encode_controller(ControllerZnode(zookeeper_claim)))
            await zk.create(paths.CONTROLLER_EPOCH, b"1")
            broker = LoneBroker(cluster.brokers[1], zk)
            await broker.start()
            yield broker
        finally:
            await zk.close()
