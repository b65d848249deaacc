"""Reads and writes znodes of the cluster one by one: role, features, ids, notifications, topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import (
    BLOCK_SIZE,
    Features,
    ProducerIdBlock,
    decode_cluster_id,
    decode_features,
    decode_producer_ids,
    encode_features,
    encode_producer_ids,
)
from metadata_store.codecs.controller import (
    ControllerZnode,
    decode_controller,
    decode_epoch,
)
from metadata_store.codecs.notifications import Partitions, decode_partitions
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.companion import Companion, CompanionState
from metadata_store.fencing.fenced import WRITES_MAX, batches, require_open, submit
from metadata_store.fencing.outcome import Fence
from metadata_store.port import Create, Delete, Node, Op, SetData, Stat, ZooKeeper
from metadata_store.reads import unreadable

T = TypeVar("T")

CAS_ROUNDS_MAX: Final = 10
"""How often a conditional write is tried against other writers before it is given up."""

_INT64_MAX: Final = 2**63 - 1


class Found(Struct, Generic[T], frozen=True):
    """A znode that exists: its value, or why that cannot be used, and its stat."""

    value: T | MalformedNode
    stat: Stat


class Contended(RuntimeError):
    """Other writers were faster every time; trying later helps."""


class Exhausted(RuntimeError):
    """A number space has come to its end."""


async def _rounds(zk: ZooKeeper) -> AsyncIterator[int]:
    """Yields rounds of a conditional write; before each further one this server catches up with the other write."""
    for round_ in range(CAS_ROUNDS_MAX):
        if round_:
            await zk.sync("/")
        yield round_


# -- role


async def read_epoch(zk: ZooKeeper) -> Found[int] | None:
    """Reads ``/controller_epoch``; ``stat.version`` is the fence's condition."""
    node = await zk.get(paths.CONTROLLER_EPOCH)
    return Found(decode_epoch(paths.CONTROLLER_EPOCH, node.data), node.stat) if node is not None else None


async def read_controller(zk: ZooKeeper) -> Found[ControllerZnode] | None:
    """Reads ``/controller``; ``stat.ephemeral_owner`` is 0 where it is persistent."""
    node = await zk.get(paths.CONTROLLER)
    return Found(decode_controller(paths.CONTROLLER, node.data), node.stat) if node is not None else None


# -- the cluster


async def ensure_top_level_paths(zk: ZooKeeper) -> None:
    """Creates the znodes that every broker creates at its start, with NULL data: child watches need existing parents.

    ``/latest_producer_id_block`` must hold NULL, which brokers below IBP 3.0 distinguish from an empty string.
    """
    wanted: dict[str, None] = {}
    for path in paths.PERSISTENT:
        parts = path.strip("/").split("/")
        wanted.update(dict.fromkeys("/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))))
    ordered = list(wanted)
    for path, found in zip(ordered, await zk.read_many(ordered), strict=True):
        if found is Code.NO_NODE:
            await _create_if_absent(zk, path, None)


async def _create_if_absent(zk: ZooKeeper, path: str, data: bytes | None) -> bool:
    try:
        await zk.create(path, data)
    except ZkError as error:
        if error.code is not Code.NODE_EXISTS:
            raise
        return False
    return True


async def read_cluster_id(zk: ZooKeeper) -> str | MalformedNode | None:
    """Reads the id of the cluster; None before the first broker started."""
    node = await zk.get(paths.CLUSTER_ID)
    return decode_cluster_id(paths.CLUSTER_ID, node.data) if node is not None else None


async def read_features(zk: ZooKeeper) -> Found[Features] | None:
    """Reads ``/feature``."""
    node = await zk.get(paths.FEATURE)
    return Found(decode_features(paths.FEATURE, node.data), node.stat) if node is not None else None


async def set_up_features(zk: ZooKeeper, version: int, enabled: bool, fence: Fence) -> MalformedNode | None:
    """Writes ``/feature`` as the IBP requires, as Kafka's controller does at the start of its term.

    ``version`` is that of the JSON (2 from IBP 3.3), ``enabled`` holds from IBP 2.7. Finalised features are kept where
    they stay enabled, and dropped where they do not. A znode that cannot be understood is left and returned.
    """
    async for _ in _rounds(zk):
        found = await read_features(zk)
        if found is not None and isinstance(found.value, MalformedNode):
            return found.value
        op = _features_op(found, version, enabled)
        if op is None or await submit(zk, fence, [op]) is None:
            return None
    raise Contended(f"{paths.FEATURE} was changed by others {CAS_ROUNDS_MAX} times in a row")


def _features_op(found: Found[Features] | None, version: int, enabled: bool) -> Op | None:
    if found is None:
        return Create(paths.FEATURE, encode_features(Features(version, enabled)))
    assert isinstance(found.value, Features)
    kept = found.value.features if enabled and found.value.enabled else {}
    wanted = Features(version, enabled, kept, found.value.unknown)
    if wanted == found.value:
        return None
    return SetData(paths.FEATURE, encode_features(wanted), found.stat.version)


async def delete_features(
    zk: ZooKeeper, names: Collection[str], fence: Fence, companions: Sequence[Companion] = ()
) -> None:
    """Deletes finalised features from ``/feature``, by compare and set; raises :class:`Contended`."""
    async for _ in _rounds(zk):
        found = await read_features(zk)
        if found is None or isinstance(found.value, MalformedNode):
            return
        now = found.value
        kept = {name: levels for name, levels in now.features.items() if name not in names}
        if len(kept) == len(now.features):
            return
        wanted = Features(now.version, now.enabled, kept, now.unknown)
        op = SetData(paths.FEATURE, encode_features(wanted), found.stat.version)
        if await submit(zk, fence, [op], [one for one in companions if one.state is CompanionState.WAITING]) is None:
            return
    raise Contended(f"{paths.FEATURE} was changed by others {CAS_ROUNDS_MAX} times in a row")


async def allocate_producer_ids(zk: ZooKeeper, broker: int, fence: Fence) -> ProducerIdBlock | MalformedNode:
    """Allocates the next block of producer ids for a broker, by compare and set.

    A block whose write had an unknown outcome is never allocated: the next call reads the last block and goes on behind
    it. Raises :class:`Exhausted`, :class:`Contended`.
    """
    async for _ in _rounds(zk):
        node = await zk.get(paths.PRODUCER_IDS)
        last = decode_producer_ids(paths.PRODUCER_IDS, node.data if node is not None else None)
        if isinstance(last, MalformedNode):
            return last
        start = last.end + 1 if last is not None else 0
        if start > _INT64_MAX - BLOCK_SIZE:
            raise Exhausted(f"producer ids are used up: {paths.PRODUCER_IDS} ends at {start - 1}")
        block = ProducerIdBlock(broker, start, start + BLOCK_SIZE - 1)
        if await submit(zk, fence, [_block_op(node, block)]) is None:
            return block
    raise Contended(f"{paths.PRODUCER_IDS} was changed by others {CAS_ROUNDS_MAX} times in a row")


def _block_op(node: Node | None, block: ProducerIdBlock) -> Op:
    data = encode_producer_ids(block)
    if node is None:
        return Create(paths.PRODUCER_IDS, data)
    return SetData(paths.PRODUCER_IDS, data, node.stat.version)


async def read_preferred_election(zk: ZooKeeper) -> Found[Partitions] | MalformedNode | None:
    """Reads ``/admin/preferred_replica_election``; Malformed where it cannot even be read."""
    path = paths.PREFERRED_ELECTION
    [node] = await zk.read_many([path])
    if not isinstance(node, Node):
        return unreadable(path, node)
    return Found(decode_partitions(path, node.data), node.stat)


# -- notifications and topics


async def delete_children(zk: ZooKeeper, children: Sequence[str], fence: Fence) -> None:
    """Deletes znodes (notifications that were processed) as they are now; absent ones count as deleted.

    Raises :class:`Contended` where other writers change them in every round.
    """
    left: Sequence[str] = children
    async for round_ in _rounds(zk):
        found = await zk.read_many(left)
        writes = [
            (path, path, (Delete(path, node.stat.version),))
            for path, node in zip(left, found, strict=True)
            if isinstance(node, Node)
        ]
        left = []
        writes_max = WRITES_MAX if round_ == 0 else max(1, WRITES_MAX >> 3 * round_)
        for batch in batches(writes, [], zk.request_bytes_max, writes_max):
            if await submit(zk, fence, batch.ops) is not None:
                left += batch.keys
        if not left:
            return
    raise Contended(f"{len(left)} znodes such as {left[0]} could not be deleted")


async def delete_as_read(zk: ZooKeeper, path: str, version: int, fence: Fence) -> Code | None:
    """Deletes a znode (a request that was carried out) that has ``version``; None where that was done, else why not."""
    failed = await submit(zk, fence, [Delete(path, version)])
    return None if failed is None else failed.code


async def delete_fresh_topic(zk: ZooKeeper, name: str, version: int, fence: Fence) -> bool:
    """Deletes a topic of which nothing was started, with its configuration.

    False, and nothing is done, where its znode has another version, has partitions, or is gone.
    """
    require_open(fence)
    config = await zk.exists(paths.topic_config(name))
    ops: list[Op] = [Delete(paths.topic(name), version)]
    if config is not None:
        ops.append(Delete(paths.topic_config(name), config.version))
    return await submit(zk, fence, ops) is None
