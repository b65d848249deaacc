"""Reads a cluster's znodes in bulk, each as a value or as :class:`MalformedNode`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import DEFAULT_ENTITY, Config, decode_broker, decode_config
from metadata_store.codecs.notifications import Partitions, decode_log_dir_event, decode_partitions
from metadata_store.codecs.topic import TopicDecoder, decode_state
from metadata_store.errors import Code, ZkError
from metadata_store.port import Node, ZooKeeper
from state_machines.model.types import Broker, Leadership, TopicAssignment

T = TypeVar("T")

TOPICS_PER_READ: Final = 100
"""Topic znodes of one MultiRead: a large topic has hundreds of kilobytes."""

TURN_BYTES: Final = 1_000_000
"""Bytes of topic znodes that are decoded in one turn of the loop: some tens of milliseconds."""


class Brokers(Struct, frozen=True):
    """Registered brokers by id, and the registrations that could not be used."""

    brokers: dict[int, Broker]
    malformed: list[MalformedNode]


def unreadable(path: str, code: Code) -> MalformedNode | None:
    """Returns the meaning of a code in a bulk read: None for an absent znode."""
    if code is Code.NO_NODE:
        return None
    return MalformedNode(path, f"cannot be read ({code.name}): check its ACL and the daemon's credentials")


async def read_brokers(zk: ZooKeeper) -> Brokers:
    """Reads every registration below ``/brokers/ids``."""
    listed = await zk.children(paths.BROKER_IDS)
    names = sorted(listed[0]) if listed is not None else []
    found = await zk.read_many([f"{paths.BROKER_IDS}/{name}" for name in names])
    brokers: dict[int, Broker] = {}
    malformed: list[MalformedNode] = []
    for name, node in zip(names, found, strict=True):
        broker = _broker(name, node)
        if isinstance(broker, Broker):
            brokers[broker.id] = broker
        elif broker is not None:
            malformed.append(broker)
    return Brokers(brokers, malformed)


def _broker(name: str, node: Node | Code) -> Broker | MalformedNode | None:
    path = f"{paths.BROKER_IDS}/{name}"
    if not isinstance(node, Node):
        return unreadable(path, node)
    broker = paths.number(name)
    if broker is None:
        return MalformedNode(path, f"{name!r} is not a broker id")
    return decode_broker(path, broker, node.data, node.stat.czxid, node.stat.version)


async def topic_names(zk: ZooKeeper) -> list[str]:
    """Reads the names of all topics, sorted."""
    listed = await zk.children(paths.TOPICS)
    return sorted(listed[0]) if listed is not None else []


async def read_topics(zk: ZooKeeper, names: Sequence[str]) -> list[TopicAssignment | MalformedNode | None]:
    """Reads topic znodes in order; None where there is none."""
    decoder = TopicDecoder()
    wanted = [paths.topic(name) for name in names]
    topics: list[TopicAssignment | MalformedNode | None] = []
    turn = 0
    for name, path, node in zip(names, wanted, await zk.read_many(wanted, paths_max=TOPICS_PER_READ), strict=True):
        if not isinstance(node, Node):
            topics.append(unreadable(path, node))
            continue
        topics.append(decoder.decode(path, name, node.data, node.stat.version, node.stat.czxid))
        turn += len(node.data or b"")
        if turn > TURN_BYTES:
            turn = 0
            await asyncio.sleep(0)
    return topics


async def read_states(zk: ZooKeeper, partitions: Sequence[tuple[str, int]]) -> list[Leadership | MalformedNode | None]:
    """Reads state znodes in order; None where there is none."""
    wanted = paths.states(partitions)
    found = await zk.read_decoded(wanted, decode_state)
    return [
        state if type(state) is Leadership else _no_leadership(path, state)
        for path, state in zip(wanted, found, strict=True)
    ]


def _no_leadership(path: str, found: Leadership | MalformedNode | Code) -> MalformedNode | None:
    if isinstance(found, MalformedNode):
        return MalformedNode(path, found.why)
    assert isinstance(found, Code)
    return unreadable(path, found)


async def read_isr_changes(zk: ZooKeeper, names: Iterable[str]) -> list[Partitions | MalformedNode]:
    """Reads the partitions that each notification names; absent notifications are left out."""
    return await _read_values(zk, [f"{paths.ISR_CHANGES}/{name}" for name in names], decode_partitions)


async def read_topic_configs(zk: ZooKeeper, names: Sequence[str]) -> dict[str, Config | MalformedNode]:
    """Reads configurations of topics; one without a znode is empty."""
    wanted = [paths.topic_config(name) for name in names]
    found = await zk.read_many(wanted)
    return {
        name: decode_config(path, node.data) if isinstance(node, Node) else unreadable(path, node) or Config({})
        for name, path, node in zip(names, wanted, found, strict=True)
    }


async def read_broker_default(zk: ZooKeeper) -> Config | MalformedNode:
    """Reads the dynamic configuration that all brokers share; empty where there is none."""
    path = paths.config("brokers", DEFAULT_ENTITY)
    [node] = await zk.read_many([path])
    return decode_config(path, node.data) if isinstance(node, Node) else unreadable(path, node) or Config({})


async def read_broker_configs(zk: ZooKeeper, brokers: Collection[int]) -> list[Config | MalformedNode]:
    """Reads the dynamic configurations that single brokers have, of those that have one."""
    parent = f"{paths.CONFIG}/brokers"
    try:
        listed = await zk.children(parent)
    except ZkError as error:
        return [found] if (found := unreadable(parent, error.code)) is not None else []
    names = sorted({str(broker) for broker in brokers}.intersection(listed[0] if listed is not None else ()))
    wanted = [paths.config("brokers", name) for name in names]
    nodes = await zk.read_many(wanted) if wanted else []
    return [
        decode_config(path, node.data) if isinstance(node, Node) else unreadable(path, node) or Config({})
        for path, node in zip(wanted, nodes, strict=True)
    ]


async def read_log_dir_events(zk: ZooKeeper, names: Iterable[str]) -> list[int | MalformedNode]:
    """Reads the broker that each notification names; absent notifications are left out."""
    return await _read_values(zk, [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names], decode_log_dir_event)


async def _read_values(
    zk: ZooKeeper, wanted: Sequence[str], decode: Callable[[str, bytes | None], T]
) -> list[T | MalformedNode]:
    values: list[T | MalformedNode] = []
    for path, node in zip(wanted, await zk.read_many(wanted), strict=True):
        value = decode(path, node.data) if isinstance(node, Node) else unreadable(path, node)
        if value is not None:
            values.append(value)
    return values
