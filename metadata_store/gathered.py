"""Gathers reads and writes that many tasks of one session have at once, each kind into one request after the other.

A service that opens many regions side by side moves a znode for each of them: by itself each move is two requests, and
two transactions. Here all that come while a request is under way go with the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from itertools import accumulate
from typing import Final, Generic, TypeVar

from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.fencing.bounds import write_bytes
from metadata_store.port import READ_PATHS_MAX, Node, Op, OpResult, ZooKeeper

CALLS_MAX: Final = 200
"""Calls of one request."""
E = TypeVar("E")
Q = TypeVar("Q")
R = TypeVar("R")


class _Again(Enum):
    """The place of a result of a call that was not carried out, because another one of its request was refused."""

    AGAIN = 0


AGAIN: Final = _Again.AGAIN


class Gathered:
    """Reads and writes on ``zk`` with its errors, each as if it had been a request of its own.

    A write that ZooKeeper refuses fails alone: the others go again, without it.
    """

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._reads: _Calls[Sequence[str], list[Node | None]] = _Calls(self._read, len, lambda: READ_PATHS_MAX)
        self._writes: _Calls[Sequence[Op], list[OpResult]] = _Calls(
            self._write,
            write_bytes,
            lambda: min(zk.request_bytes_max, zk.write_bytes_max // 2),  # weights are without the chroot
        )

    async def read(self, *paths: str) -> list[Node | None]:
        """Reads znodes in order; one that does not exist is None."""
        return await self._reads.call(paths)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Writes all operations or none; raises ``MultiFailed`` with the first failing index, ``OutcomeUnknown``."""
        return await self._writes.call(ops)

    async def _read(self, calls: Sequence[Sequence[str]]) -> Sequence[list[Node | None] | Exception]:
        found = await self._zk.read_many([path for paths in calls for path in paths])
        return [_read_by(paths, found[end - len(paths) : end]) for paths, end in _with_ends(calls)]

    async def _write(self, calls: Sequence[Sequence[Op]]) -> Sequence[list[OpResult] | Exception | _Again]:
        try:
            results = await self._zk.multi([op for ops in calls for op in ops])
        except MultiFailed as failed:
            return [
                AGAIN if not end - len(ops) <= failed.index < end else _part(failed, end - len(ops), end)
                for ops, end in _with_ends(calls)
            ]
        return [results[end - len(ops) : end] for ops, end in _with_ends(calls)]


def _with_ends(calls: Sequence[Sequence[E]]) -> Iterator[tuple[Sequence[E], int]]:
    """Yields calls, each with the place of its end among the entries of all of them."""
    return zip(calls, accumulate(map(len, calls)), strict=True)


def _read_by(paths: Sequence[str], found: Sequence[Node | Code]) -> list[Node | None] | ZkError:
    """Returns what a call has read, or the error of the first znode that may not be read."""
    for path, one in zip(paths, found, strict=True):
        if isinstance(one, Code) and one is not Code.NO_NODE:
            return ZkError(one, path)
    return [one if isinstance(one, Node) else None for one in found]


def _part(failed: MultiFailed, first: int, end: int) -> MultiFailed:
    return MultiFailed(failed.index - first, failed.codes[first:end], failed.path)


class _Calls(Generic[Q, R]):
    """Calls of one kind, in the order in which they came.

    ``carry_out`` returns for each call its result, its error, or that it is to go again; what it raises all of them
    get. ``weight_max``: of all calls that go at once, unless one alone weighs more.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[Q]], Awaitable[Sequence[R | Exception | _Again]]],
        weigh: Callable[[Q], int],
        weight_max: Callable[[], int],
    ) -> None:
        self._carry_out, self._weigh, self._weight_max = carry_out, weigh, weight_max
        self._waiting: deque[tuple[Q, asyncio.Future[R]]] = deque()
        self._serving: asyncio.Task[None] | None = None

    async def call(self, asked: Q) -> R:
        """Returns the result of a call. One that is cancelled before it goes is not carried out."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="gathered")
        return await future

    async def _serve(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # tasks that have just got their results may have their next calls
                await self._go(self._some())
        finally:
            self._serving = None

    def _some(self) -> list[tuple[Q, asyncio.Future[R]]]:
        """Takes the calls that go next."""
        some: list[tuple[Q, asyncio.Future[R]]] = []
        weight, most = 0, self._weight_max()
        while self._waiting and len(some) < CALLS_MAX:
            asked, future = self._waiting[0]
            weight += self._weigh(asked)
            if some and weight > most:
                break
            self._waiting.popleft()
            if not future.done():
                some.append((asked, future))
        return some

    async def _go(self, some: Sequence[tuple[Q, asyncio.Future[R]]]) -> None:
        if not some:
            return
        try:
            results = await self._carry_out([asked for asked, _ in some])
        except asyncio.CancelledError:
            for _, future in (*some, *self._waiting):
                future.cancel()
            self._waiting.clear()
            raise
        except BaseException as error:
            for _, future in some:
                _end(future, error)
            return
        ended = list(zip(some, results, strict=True))
        for (_, future), result in ended:
            _end(future, result)
        self._waiting.extendleft(call for call, result in reversed(ended) if result is AGAIN)


def _end(future: asyncio.Future[R], result: R | BaseException | _Again) -> None:
    if future.done() or isinstance(result, _Again):
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
