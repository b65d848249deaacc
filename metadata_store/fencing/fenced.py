"""Fences multis: puts writes behind a check of the controller epoch, and judges their failures.

Source: Kafka's ``wrapRequestWithControllerEpochCheck`` (KAFKA-6082), which has one write per multi; here hundreds
share one, at about the price of one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct, field

from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, ZkError
from metadata_store.fencing.bounds import OP_OVERHEAD, write_bytes
from metadata_store.fencing.companion import Companion, CompanionState, settle
from metadata_store.fencing.outcome import FENCE_PATH_BYTES_MAX, Fence, Fenced, MultiOutcome
from metadata_store.port import WRITE_BYTES_MAX, Check, Op, OpResult, ZooKeeper

C = TypeVar("C")
K = TypeVar("K")
R = TypeVar("R")

WRITES_MAX: Final = 500
"""Writes of one multi."""

HEAD_BYTES: Final = FENCE_PATH_BYTES_MAX + 2 * OP_OVERHEAD
"""Bytes of a multi besides its writes."""

_CONFLICTS: Final = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NOT_EMPTY)

Write = tuple[K, C, Sequence[Op]]
"""An entity, its change, and the operations that write it."""


class Batch(Struct, Generic[C, K]):
    """The writes of one multi. ``owners`` has the index of the change of each operation; ``companions`` have none."""

    keys: list[K]
    changes: list[C]
    ops: list[Op]
    owners: Sequence[int]
    companions: list[Companion] = field(default_factory=list)


def batches(
    writes: Iterable[Write[K, C]],
    refused: list[tuple[K, Code]],
    bytes_max: int,
    writes_max: int = WRITES_MAX,
    companions: Mapping[K, Companion] | None = None,
) -> Iterator[Batch[C, K]]:
    """Packs writes into multis of at most ``writes_max`` operations and ``bytes_max`` bytes.

    The operations of an entity stay together; one that is larger goes alone, and one that ZooKeeper would hang up on
    goes into ``refused``. A companion goes with the first of its entities that leaves room for it.
    """
    waiting = companions or {}
    owners: list[int] = []
    batch = Batch[C, K]([], [], [], owners)
    size = HEAD_BYTES
    for key, change, ops in writes:
        cost = write_bytes(ops)
        if cost + HEAD_BYTES > WRITE_BYTES_MAX:
            refused.append((key, Code.TOO_BIG))
            continue
        companion = waiting.get(key)
        room = companion.bytes if companion is not None and companion.waits else 0
        if batch.ops and (len(batch.ops) + len(ops) > writes_max or size + cost + room > bytes_max):
            yield batch
            owners = []
            batch = Batch[C, K]([], [], [], owners)
            size = HEAD_BYTES
        owners += [len(batch.keys)] * len(ops)
        batch.keys.append(key)
        batch.changes.append(change)
        batch.ops += ops
        size += cost
        if companion is not None and companion.waits and size + room <= bytes_max:
            companion.in_multi = True
            batch.companions.append(companion)
            size += room
    if batch.ops:
        yield batch


def require_open(fence: Fence) -> None:
    """Raises :class:`NotConnected` where the term may not write now."""
    if not fence.open():
        raise NotConnected("the term may not write now (it ended, its lease ran out, or the connection is down)")


async def submit(
    zk: ZooKeeper, fence: Fence, ops: Sequence[Op], companions: Sequence[Companion] = ()
) -> MultiFailed | None:
    """Sends one fenced multi; returns None where it was applied, else its failure.

    ``index`` of the failure counts the check as operation 0. Raises :class:`Fenced`, ``OutcomeUnknown``,
    ``NotConnected``, and ``ZkError`` where the whole request was refused.
    """
    found = await _submit(zk.apply, fence, ops, companions)
    return found if isinstance(found, MultiFailed) else None


async def _submit(
    send: Callable[[Sequence[Op]], Awaitable[R]], fence: Fence, ops: Sequence[Op], companions: Sequence[Companion]
) -> R | MultiFailed:
    """Sends a multi with its companions; without them where ZooKeeper refuses any of them."""
    if not companions:
        return await _sent(send, fence, ops)
    try:
        found = await _sent(send, fence, [*ops, *(op for companion in companions for op in companion.ops)])
    except OutcomeUnknown:
        settle(companions, CompanionState.UNKNOWN)
        raise
    except MultiFailed:
        raise
    except ZkError as refused:
        code = refused.code
    else:
        if not isinstance(found, MultiFailed):
            settle(companions, CompanionState.APPLIED)
            return found
        if found.index <= len(ops):
            return found
        code = found.code
    for companion in companions:
        companion.fail(code)
    return await _sent(send, fence, ops)


async def _sent(send: Callable[[Sequence[Op]], Awaitable[R]], fence: Fence, ops: Sequence[Op]) -> R | MultiFailed:
    require_open(fence)
    try:
        return await send([Check(fence.path, fence.epoch_version), *ops])
    except MultiFailed as failed:
        if failed.index:
            return failed
        if failed.code in (Code.BAD_VERSION, Code.NO_NODE):
            raise Fenced(
                f"another controller was elected: {fence.path} has no longer version "
                f"{fence.epoch_version} ({failed.code.name})"
            ) from failed
        raise


async def confirm(zk: ZooKeeper, fence: Fence) -> None:
    """Sends the check alone: raises :class:`Fenced` where another controller was elected, else as :func:`submit`."""
    await submit(zk, fence, ())


async def attempt(zk: ZooKeeper, fence: Fence, batch: Batch[C, K]) -> MultiOutcome[C, K] | MultiFailed:
    """Writes a batch; returns its outcome, or the failure of one of its operations, which the caller judges.

    Raises :class:`Fenced` and ``NotConnected``.
    """
    return (await _attempt(zk.apply, fence, batch))[0]


async def _attempt(
    send: Callable[[Sequence[Op]], Awaitable[R]], fence: Fence, batch: Batch[C, K]
) -> tuple[MultiOutcome[C, K] | MultiFailed, R | None]:
    try:
        found = await _submit(send, fence, batch.ops, batch.companions)
    except OutcomeUnknown:
        return MultiOutcome(unknown=batch.keys), None
    except MultiFailed:
        raise
    except ZkError as error:
        return MultiOutcome(refused=[(key, error.code) for key in batch.keys]), None
    return (found, None) if isinstance(found, MultiFailed) else (MultiOutcome(applied=batch.changes), found)


async def write(zk: ZooKeeper, fence: Fence, batch: Batch[C, K]) -> MultiOutcome[C, K]:
    """Writes a batch and judges its outcome; raises :class:`Fenced` and ``NotConnected``."""
    found = await attempt(zk, fence, batch)
    return judged(batch, found) if isinstance(found, MultiFailed) else found


async def write_with_results(
    zk: ZooKeeper, fence: Fence, batch: Batch[C, K]
) -> tuple[MultiOutcome[C, K], Sequence[OpResult]]:
    """Writes a batch as :func:`write`; returns the results of its operations, too, or none where it failed."""
    found, results = await attempt_with_results(zk, fence, batch)
    return (judged(batch, found) if isinstance(found, MultiFailed) else found), results


async def attempt_with_results(
    zk: ZooKeeper, fence: Fence, batch: Batch[C, K]
) -> tuple[MultiOutcome[C, K] | MultiFailed, Sequence[OpResult]]:
    """Writes a batch as :func:`attempt`; returns the results of its operations, too, or none where it failed."""
    found, results = await _attempt(zk.multi, fence, batch)
    return found, results[1:] if results else ()


def judged(batch: Batch[C, K], failed: MultiFailed) -> MultiOutcome[C, K]:
    """Blames the entity of the failing operation; all others of the multi were not written: conflicts."""
    if failed.code in _CONFLICTS:
        return MultiOutcome(conflicts=batch.keys)
    culprit = batch.owners[failed.index - 1]
    rest = batch.keys[:culprit] + batch.keys[culprit + 1 :]
    if failed.code is Code.NO_NODE:
        return MultiOutcome(gone=[batch.keys[culprit]], conflicts=rest)
    return MultiOutcome(refused=[(batch.keys[culprit], failed.code)], conflicts=rest)
