"""Compares one partition in memory with ZooKeeper, so that its explanation agrees with a verification."""

from __future__ import annotations

import asyncio
from typing import Final

from controller.kafka.path.controller import STATE_GONE
from controller.operator.comparison import CopyDifference, row_with_memory
from controller.role.claim import Role
from metadata_store.codecs.base import Malformed
from metadata_store.errors import ZooKeeperError
from metadata_store.kafka_store import KafkaStore
from state_machines.model.cluster import Cluster

LOOKS_MAX: Final = 3
PAUSE_S: Final = 0.3
"""Between two looks: a change that has just been written is no difference."""
GONE: Final = "there", "none"


async def differences_of(role: Role | None, cluster: Cluster, i: int) -> list[str]:
    """Returns what differs in every look, in sentences; nothing while ZooKeeper does not respond.

    Refusals of brokers are explained by themselves.
    """
    found: list[CopyDifference] = []
    if role is None:
        return []
    for look in range(LOOKS_MAX):
        if look:
            await asyncio.sleep(PAUSE_S)
        try:
            found = await _look(KafkaStore(role.zk), cluster, i)
        except ZooKeeperError:
            return []
        if not found:
            break
    return [_worded(one) for one in found]


async def _look(store: KafkaStore, cluster: Cluster, i: int) -> list[CopyDifference]:
    name = cluster.name(i)
    [topic] = await store.load_topics([name.topic])
    if isinstance(topic, Malformed):
        return [CopyDifference(name.topic, name.partition, "topic znode", "readable", topic.why)]
    [state] = await store.load_states([name])
    assignment = topic.partitions.get(name.partition) if topic is not None else None
    return [one for one in row_with_memory(cluster, i, assignment, state) if one.broker is None]


def _worded(found: CopyDifference) -> str:
    if found.field == "state znode" and (found.expected, found.found) == GONE:
        return STATE_GONE
    return f"{found.field} is {found.found} in ZooKeeper, and {found.expected} in the daemon's memory"
