"""Bounds what is under way: sizes of requests, counted without encoding them, and jobs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from metadata_store.acl import Acl
from metadata_store.fencing.outcome import Fenced
from metadata_store.port import Create, SetData, Write

OP_OVERHEAD: Final = 64
"""Bytes of an operation besides its path and data (header, lengths, version or default ACL list), rounded up."""


ACL_OVERHEAD: Final = 12
"""Bytes of an entry of an ACL list besides its scheme and id."""


def op_bytes(op: Write) -> int:
    """Returns the bytes of one operation in a multi, at most."""
    path = op.path
    size = (len(path) if path.isascii() else len(path.encode())) + OP_OVERHEAD
    if isinstance(op, (SetData, Create)) and op.data is not None:
        size += len(op.data)
    if isinstance(op, Create) and op.acl:
        size += acl_bytes(op.acl)
    return size


def acl_bytes(acl: Iterable[Acl]) -> int:
    """Returns the bytes of an ACL list in a creation."""
    return sum(ACL_OVERHEAD + len(one.scheme) + len(one.id.encode()) for one in acl)


def write_bytes(ops: Iterable[Write]) -> int:
    """Returns the bytes of a multi of ``ops``."""
    return sum(map(op_bytes, ops))


R = TypeVar("R")

Emit = Callable[[R], None]
Job = Callable[[Emit[R]], Awaitable[None]]


async def in_flight(jobs: Iterable[Job[R]], jobs_max: int) -> AsyncGenerator[R, None]:
    """Runs ``jobs``, at most ``jobs_max`` at a time, and yields what they emit as soon as they do.

    After the first error no further job is begun. Those under way are finished, everything that was emitted is
    yielded, and only then the error is raised (of several, ``Fenced`` wins). Where the consumer stops, or is
    cancelled, the jobs are cancelled.
    """
    emitted: asyncio.Queue[R | None] = asyncio.Queue()
    errors: list[BaseException] = []
    waiting = iter(jobs)
    workers = [asyncio.ensure_future(_work(waiting, emitted, errors)) for _ in range(jobs_max)]
    try:
        for _ in workers:
            while (result := await emitted.get()) is not None:
                yield result
    finally:
        for worker in workers:
            worker.cancel()
    if errors:
        raise min(errors, key=_weight)


async def _work(waiting: Iterator[Job[R]], emitted: asyncio.Queue[R | None], errors: list[BaseException]) -> None:
    try:
        for job in waiting:
            await job(emitted.put_nowait)
            if errors:
                break
    except BaseException as error:
        errors.append(error)
    finally:
        emitted.put_nowait(None)


def _weight(error: BaseException) -> int:
    if not isinstance(error, Exception):
        return 0
    return 1 if isinstance(error, Fenced) else 2
