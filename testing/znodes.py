"""Builds the znodes of a Kafka cluster as brokers, Kafka's controller and its tools write them.

Pure functions return operations, which any store writes; coroutines write them through
:class:`metadata_store.port.ZooKeeper`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metadata_store import paths
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.controller import ControllerZnode, encode_controller, encode_epoch
from metadata_store.codecs.topic import decode_topic, encode_state, encode_topic
from metadata_store.port import ANY_VERSION, Create, Node, Op, SetData, ZooKeeper
from state_machines.model.types import Assignment, TopicAssignment

PERSISTENT_WITH_PARENTS: Final = tuple(
    dict.fromkeys(
        path[:end]
        for path in paths.PERSISTENT
        for end in [at for at, character in enumerate(path) if at and character == "/"] + [len(path)]
    )
)
"""The znodes of ``paths.PERSISTENT`` and their parents, parents first.

Brokers create them with NULL data when they start.
"""


def election(broker_id: int, epoch: Node | None) -> list[Op]:
    """Returns the multi by which a broker becomes controller.

    ``epoch``: ``/controller_epoch`` as read before, None without it.
    """
    claim = Create(paths.CONTROLLER, encode_controller(ControllerZnode(broker_id)), ephemeral=True)
    if epoch is None:
        return [claim, Create(paths.CONTROLLER_EPOCH, encode_epoch(1))]
    return [claim, SetData(paths.CONTROLLER_EPOCH, encode_epoch(int(epoch.data or b"0") + 1), epoch.stat.version)]


def topic(name: str, replicas: Mapping[int, Sequence[int]], topic_id: bytes | None = None) -> Create:
    """Returns the write of a topic znode; the cluster's controller then starts the partitions."""
    assignments = {partition: Assignment(tuple(brokers)) for partition, brokers in replicas.items()}
    return Create(paths.topic(name), encode_topic(assignments, topic_id))


def states(
    name: str,
    replicas: Sequence[tuple[int, ...]],
    *,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    leader_epoch: int = 0,
    controller_epoch: int = 0,
) -> list[Op]:
    """Returns the writes of a topic's state znodes and their parents.

    By default first replicas lead and all are in sync.
    """
    ops: list[Op] = [Create(paths.partitions(name), None)]
    for partition, brokers in enumerate(replicas):
        chosen = brokers[0] if leader is None else leader
        data = encode_state(chosen, leader_epoch, isr or brokers, controller_epoch)
        ops += (Create(paths.partition(name, partition), None), Create(paths.state(name, partition), data))
    return ops


def expansion(found: TopicAssignment, *replicas: tuple[int, ...]) -> SetData:
    """Returns the write that adds partitions to a topic."""
    added = {len(found.partitions) + n: Assignment(brokers) for n, brokers in enumerate(replicas)}
    return SetData(paths.topic(found.name), encode_topic({**found.partitions, **added}, found.topic_id), found.version)


async def create_topic(
    zk: ZooKeeper,
    name: str,
    replicas: Mapping[int, Sequence[int]],
    topic_id: bytes | None = None,
    config: Mapping[str, str] | None = None,
) -> None:
    """Writes the znodes of a new topic as a broker's auto-creation does.

    Raises ``ZkError`` with NODE_EXISTS where the topic exists.
    """
    path, settings = paths.topic_config(name), encode_config(config or {})
    stale = await zk.exists(path)  # a deleted topic of this name may have left its configuration
    first: Op = Create(path, settings) if stale is None else SetData(path, settings, stale.version)
    await zk.multi([first, topic(name, replicas, topic_id)])


async def remove_by_hand(zk: ZooKeeper, name: str) -> None:
    """Removes a topic's znodes, children first, without a marker: brokers hear nothing of it."""

    async def remove(path: str) -> None:
        listed = await zk.children(path)
        for child in listed[0] if listed is not None else ():
            await remove(f"{path}/{child}")
        await zk.delete(path, ANY_VERSION)

    await remove(paths.topic(name))
    await zk.delete(paths.topic_config(name), ANY_VERSION)


async def read_topic(zk: ZooKeeper, name: str) -> TopicAssignment:
    """Reads a topic znode that exists and is sound."""
    node = await zk.get(paths.topic(name))
    assert node is not None
    found = decode_topic(paths.topic(name), name, node.data, node.stat.version, node.stat.czxid)
    assert isinstance(found, TopicAssignment)
    return found


async def expand_topic(zk: ZooKeeper, name: str, *replicas: tuple[int, ...]) -> None:
    """Adds partitions to a topic as Kafka's tools do."""
    op = expansion(await read_topic(zk, name), *replicas)
    await zk.set(op.path, op.data, op.version)


async def elect(zk: ZooKeeper, broker_id: int) -> None:
    """Elects a broker as controller; raises ``MultiFailed`` where another has the role or an ACL locks it."""
    await zk.multi(election(broker_id, await zk.get(paths.CONTROLLER_EPOCH)))
