"""Reads, decodes and rewrites ``/admin/reassign_partitions``: reassignments by tools up to Kafka 2.8, or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode, NonNegative, guarded, to_json
from metadata_store.codecs.notifications import Unusable, each_alone
from metadata_store.fencing.fenced import submit
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Delete, Node, Op, SetData, ZooKeeper
from metadata_store.reads import unreadable
from state_machines.model.types import TopicPartition


class Reassignments(Struct, frozen=True):
    """Targets by partition; ``unknown`` holds further fields, ``unusable`` the entries that request nothing."""

    targets: dict[TopicPartition, tuple[int, ...]]
    unknown: dict[str, object] = {}
    unusable: Unusable = Unusable()


class _Target(Struct):
    topic: str
    partition: NonNegative
    replicas: tuple[NonNegative, ...]


def decode_reassignments(path: str, data: bytes | None) -> Reassignments | MalformedNode:
    """Decodes the requested targets; a partition named twice keeps its last target, as in Kafka."""
    return guarded(path, lambda: _reassignments(data))


def _reassignments(data: bytes | None) -> Reassignments:
    found = each_alone(data, _Target)
    targets = {TopicPartition(t.topic, t.partition): t.replicas for t in found.usable}
    return Reassignments(targets, found.unknown, found.unusable)


def encode_reassignments(
    targets: Mapping[TopicPartition, tuple[int, ...]], unknown: Mapping[str, object] | None = None
) -> bytes:
    """Encodes targets."""
    partitions = [{"topic": t, "partition": p, "replicas": replicas} for (t, p), replicas in targets.items()]
    return to_json({"version": 1, "partitions": partitions}, unknown)


class Request(NamedTuple):
    """The znode: targets by partition, further fields, its version, and entries that the next rewrite leaves out."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    unknown: Mapping[str, object]
    version: int
    unusable: Unusable = Unusable()


async def read_reassignments(zk: ZooKeeper) -> Request | MalformedNode | None:
    """Reads the requested targets; None where there is no such znode."""
    path = paths.REASSIGN_PARTITIONS
    [node] = await zk.read_many([path])
    if not isinstance(node, Node):
        return unreadable(path, node)
    found = decode_reassignments(path, node.data)
    if isinstance(found, MalformedNode):
        return found
    return Request(found.targets, found.unknown, node.stat.version, found.unusable)


async def write_reassignments(zk: ZooKeeper, left: Request, fence: Fence) -> bool:
    """Writes what is left of the znode that was read with a version; where nothing is left, deletes it.

    False, and nothing is written, where it has another version by now, is gone, or may not be written.
    """
    path = paths.REASSIGN_PARTITIONS
    data = encode_reassignments(left.targets, left.unknown)
    op: Op = SetData(path, data, left.version) if left.targets else Delete(path, left.version)
    return await submit(zk, fence, [op]) is None
