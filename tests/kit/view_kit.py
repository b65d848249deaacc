"""Daemons and models for tests of the operators' view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controller.daemon.daemon import Daemon
from controller.operator.view import View
from state_machines.model.cluster import Cluster
from tests.kit.deadlines import eventually
from tests.kit.kafka.model import P, make_cluster, topic
from tests.kit.kafka.role import Kafka, kafka


@asynccontextmanager
async def governed(folder: Path) -> AsyncIterator[tuple[Kafka, Daemon, View]]:
    """Runs three brokers with two topics, an active daemon and its view."""
    async with kafka(folder) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.topic("payments", (3, 1))
        await cluster.take_over()
        await cluster.serving(daemon)
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        await eventually(lambda: view.readiness().ok)  # a busy machine may delay the first heartbeats
        yield cluster, daemon, view


async def dies(cluster: Kafka, broker: int) -> None:
    """Ends the session of a broker, which takes no part in elections any more."""
    cluster.brokers[broker].elects = False
    await cluster.brokers[broker].zk.close()


def several(topics: int, partitions: int) -> Cluster:
    """Builds topics t00, t01, ... on three brokers; the second partition of each lacks broker 3 in its ISR."""
    cluster = make_cluster()
    for number in range(topics):
        rows = cluster.observe_topic(topic(f"t{number:02}", [(1, 2, 3)] * partitions))
        found = [P((1, 2, 3), leader=1, isr=(1, 2) if p == 1 else ()).leadership() for p in range(partitions)]
        cluster.load_leadership(rows, found)
    return cluster
