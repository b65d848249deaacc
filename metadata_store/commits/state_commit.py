"""Commits changes of partitions: conditional writes of state znodes, and the creation of those of new partitions.

A partition is in one multi at a time. The writes of a call are disjoint, and those of one large topic that is being
created follow each other. A write that fails is returned instead of being sent again. Only parents of state znodes
(``.../partitions`` and ``.../partitions/P``), which have no other writer, are settled here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from metadata_store import paths
from metadata_store.codecs.topic import encode_state
from metadata_store.errors import Code, MultiFailed
from metadata_store.fencing.bounds import OP_OVERHEAD, Emit, Job, in_flight
from metadata_store.fencing.fenced import HEAD_BYTES, WRITES_MAX, Batch, attempt, judged, write
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import IN_FLIGHT_MAX, REQUEST_BYTES_MAX, Create, Op, SetData, ZooKeeper
from state_machines.model.decision import Change

Names = Callable[[int], tuple[str, int]]
"""Topic and partition of a row index."""

StateOutcome = MultiOutcome[Change, int]

OPS_PER_CREATION: Final = 3
PARENT_ROUNDS_MAX: Final = 3
"""How often the creation of a state znode is tried while another writer creates or deletes its parents."""


def state_data(change: Change) -> bytes:
    """Encodes the state znode after a change."""
    row = change.after
    return encode_state(row.leader, row.leader_epoch, row.isr, row.controller_epoch, row.recovering)


async def commit_states(
    zk: ZooKeeper, changes: Sequence[Change], names: Names, fence: Fence, writes_max: int = WRITES_MAX
) -> AsyncGenerator[StateOutcome, None]:
    """Writes changes in multis and yields each outcome; raises ``Fenced`` or ``NotConnected`` after the last one."""
    jobs = _jobs(zk, changes, names, fence, writes_max)
    async with aclosing(in_flight(jobs, IN_FLIGHT_MAX)) as outcomes:
        async for outcome in outcomes:
            yield outcome


def _jobs(
    zk: ZooKeeper, changes: Sequence[Change], names: Names, fence: Fence, writes_max: int
) -> Iterator[Job[StateOutcome]]:
    """Yields jobs lazily: a multi is encoded when its turn comes, while the server works on those before it."""
    for batch in _updates([change for change in changes if not change.creates], names, writes_max, zk):
        yield partial(_write, zk, fence, batch)
    creations = [change for change in changes if change.creates]
    size = writes_max * zk.request_bytes_max // REQUEST_BYTES_MAX // OPS_PER_CREATION
    for chain in _chains(creations, names, max(1, size)):
        yield partial(_create, zk, fence, names, chain)


def _updates(changes: Sequence[Change], names: Names, writes_max: int, zk: ZooKeeper) -> Iterator[Batch[Change, int]]:
    """Yields multis of updates from one tight loop: a failover has one small operation per change (1 microsecond)."""
    start = size = 0
    bytes_max = zk.request_bytes_max - HEAD_BYTES
    ops: list[Op] = []
    for at, change in enumerate(changes):
        topic, partition = names(change.entity)
        path, data = paths.state(topic, partition), state_data(change)
        cost = len(path) + len(data) + OP_OVERHEAD
        if ops and (len(ops) == writes_max or size + cost > bytes_max):
            yield _batch(changes[start:at], ops)
            start, size, ops = at, 0, []
        ops.append(SetData(path, data, change.before.version))
        size += cost
    if ops:
        yield _batch(changes[start:], ops)


def _batch(changes: Sequence[Change], ops: list[Op]) -> Batch[Change, int]:
    return Batch([change.entity for change in changes], list(changes), ops, range(len(ops)))


async def _write(zk: ZooKeeper, fence: Fence, batch: Batch[Change, int], emit: Emit[StateOutcome]) -> None:
    emit(await write(zk, fence, batch))


def _chains(changes: Iterable[Change], names: Names, size: int) -> Iterator[list[list[Change]]]:
    """Yields chains of multis: small topics share a multi; a larger topic is a chain, one multi after the other."""
    topics: dict[str, list[Change]] = {}
    for change in changes:
        topics.setdefault(names(change.entity)[0], []).append(change)
    shared: list[Change] = []
    for members in topics.values():
        if len(members) > size:
            yield [members[at : at + size] for at in range(0, len(members), size)]
            continue
        if len(shared) + len(members) > size:
            yield [shared]
            shared = []
        shared += members
    if shared:
        yield [shared]


async def _create(
    zk: ZooKeeper, fence: Fence, names: Names, chain: list[list[Change]], emit: Emit[StateOutcome]
) -> None:
    for changes in chain:
        emit(await _create_together(zk, fence, names, changes))


async def _create_together(zk: ZooKeeper, fence: Fence, names: Names, changes: list[Change]) -> StateOutcome:
    """Creates state znodes, with the parents that are missing, in one multi."""
    for round_ in range(PARENT_ROUNDS_MAX):
        if round_:
            await zk.sync("/")
        batch = _creation(changes, names, await _missing_parents(zk, changes, names))
        found = await attempt(zk, fence, batch)
        if not isinstance(found, MultiFailed):
            return found
        if not _parents_moved(found):
            return _judged_creation(batch, found, names)
    return MultiOutcome(conflicts=[change.entity for change in changes])


async def _missing_parents(zk: ZooKeeper, changes: Iterable[Change], names: Names) -> set[str]:
    wanted: dict[str, None] = {}
    for change in changes:
        topic, partition = names(change.entity)
        wanted[paths.partitions(topic)] = None
        wanted[paths.partition(topic, partition)] = None
    ordered = list(wanted)
    found = await zk.read_decoded(ordered, lambda _data, _version: None)
    return {path for path, code in zip(ordered, found, strict=True) if code is Code.NO_NODE}


def _creation(changes: Iterable[Change], names: Names, missing: set[str]) -> Batch[Change, int]:
    owners: list[int] = []
    batch = Batch[Change, int]([], [], [], owners)
    for change in changes:
        topic, partition = names(change.entity)
        ops: list[Op] = []
        for parent in (paths.partitions(topic), paths.partition(topic, partition)):
            if parent in missing:
                missing.discard(parent)
                ops.append(Create(parent, None))
        ops.append(Create(paths.state(topic, partition), state_data(change)))
        owners += [len(batch.keys)] * len(ops)
        batch.keys.append(change.entity)
        batch.changes.append(change)
        batch.ops += ops
    return batch


def _parents_moved(failed: MultiFailed) -> bool:
    """Checks whether another writer created or deleted a parent after it was looked up; then it is looked up again."""
    is_state = failed.path.endswith("/state")
    if failed.code is Code.NODE_EXISTS:
        return not is_state
    return failed.code is Code.NO_NODE and not failed.path.endswith("/partitions")


def _judged_creation(batch: Batch[Change, int], failed: MultiFailed, names: Names) -> StateOutcome:
    """Judges a failed creation: a missing topic znode takes all its partitions with it."""
    if failed.code is not Code.NO_NODE:
        return judged(batch, failed)
    lost = names(batch.keys[batch.owners[failed.index - 1]])[0]
    gone = [key for key in batch.keys if names(key)[0] == lost]
    return MultiOutcome(gone=gone, conflicts=[key for key in batch.keys if names(key)[0] != lost])
