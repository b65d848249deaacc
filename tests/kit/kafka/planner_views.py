"""Makes a ZooKeeper with one topic, and reads the planner's view of it as the command does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from brokers.client import BrokerCallFailed
from cli import planning
from controller.role import own_znodes as own
from metadata_store import paths
from state_machines.model.types import Broker, LogDirectory, ReplicaLog
from state_machines.planning.cluster_view import ClusterView
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.znodes import create_topic
from tests.kit.kafka.cluster import registration

SIZES = {("t", 0): 700, ("t", 1): 10}


async def cluster(*brokers: int) -> MemoryZooKeeper:
    """Returns a ZooKeeper with these brokers and the topic t on 1 and 2."""
    zk = MemoryZooKeeper(MemoryServer())
    await zk.connect(1.0)
    for path in ("/brokers", paths.BROKER_IDS, paths.TOPICS, "/config", "/config/topics", "/cluster", "/admin"):
        await zk.create(path, None)
    for path in (paths.DELETE_TOPICS, own.ROOT, own.DAEMONS):
        await zk.create(path, None)
    await zk.create(paths.CLUSTER_ID, b'{"version":"1","id":"here"}')
    for broker in brokers:
        await zk.create(paths.broker(broker), registration(broker))
    await create_topic(zk, "t", {0: [1, 2], 1: [2, 1]}, config={"min.insync.replicas": "2"})
    return zk


def dial_to(silent: int = 0) -> Any:
    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[Any]:
        if broker.id == silent:
            raise BrokerCallFailed("no response")

        async def replica_logs(_: Mapping[str, Any] | None) -> tuple[LogDirectory, ...]:
            logs = [ReplicaLog(t, p, size - broker.id, 0, False) for (t, p), size in SIZES.items()]
            return (LogDirectory("/logs", 0, (*logs, ReplicaLog("t", 0, 10_000, 0, True))),)

        async def broker_configs(_: int, names: list[str]) -> dict[str, str | None]:
            return dict.fromkeys(names, "1")

        yield SimpleNamespace(replica_logs=replica_logs, broker_configs=broker_configs)

    return dial


async def viewed(zk: MemoryZooKeeper, said: list[str], *, sizes: bool = True, silent: int = 0) -> ClusterView:
    async def daemons() -> frozenset[int]:
        return frozenset({1_000_001})

    role: Any = SimpleNamespace(zk=zk, daemons=daemons)
    return await planning.read_view(role, dial_to(silent), said.append, sizes=sizes)
