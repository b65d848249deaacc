"""Sends what many tasks of one session read at once in one request, and so what they write.

A service that opens many regions side by side moves a znode for each of them: by itself each move is a read and a
transaction. Here all that come while a request is under way go with the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

from metadata_store.errors import Code, MultiFailed, NotConnected, OutcomeUnknown, SessionLost, ZkError, ZooKeeperError
from metadata_store.fencing.bounds import write_bytes
from metadata_store.port import READ_PATHS_MAX, Node, Op, OpResult, ZooKeeper

CALLS_MAX: Final = 200
"""Calls of one request."""
OVER: Final = "the session of this call is over: it was not carried out"
E = TypeVar("E")
Q = TypeVar("Q")
R = TypeVar("R")


class Gathered:
    """Reads and writes on ``zk`` with its errors, each as if it had been a request of its own.

    A write that ZooKeeper refuses fails alone: those before it go again, then those behind it. A call of a session that
    has ended meanwhile is not carried out in the next one.
    """

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._reads = _Calls[Sequence[str], list[Node | None]](zk, self._read, len, lambda: READ_PATHS_MAX)
        self._writes = _Calls[Sequence[Op], list[OpResult]](
            zk,
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
        try:
            found = await self._zk.read_many([path for paths in calls for path in paths])
        except ZooKeeperError as error:
            return [_own(error) for _ in calls]
        return [_read_by(paths, found[end - len(paths) : end]) for paths, end in _with_ends(calls)]

    async def _write(self, calls: Sequence[Sequence[Op]]) -> Sequence[list[OpResult] | Exception]:
        """Writes in as few requests as there may be: one, and two more for each call that is refused."""
        results: dict[int, list[OpResult] | Exception] = {}
        groups, session = [range(len(calls))], self._zk.session_id
        while groups:
            group = groups.pop()
            if self._zk.session_id != session:
                results.update((number, SessionLost(OVER)) for number in group)
                continue
            both = list(zip(group, _with_ends(calls[group.start : group.stop]), strict=True))
            if not both:
                continue
            try:
                found = await self._zk.multi([op for _, (ops, _) in both for op in ops])
            except MultiFailed as failed:
                number, (ops, end) = next(one for one in both if failed.index < one[1][1])
                results[number] = _part(failed, end - len(ops), end)
                groups += range(number + 1, group.stop), range(group.start, number)
            except ZooKeeperError as error:
                results.update((number, _own(error)) for number in group)
            else:
                results.update((number, found[end - len(ops) : end]) for number, (ops, end) in both)
        return [results[number] for number in range(len(calls))]


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


def _own(error: ZooKeeperError) -> ZooKeeperError:
    """Returns an error of its own for one of the callers."""
    return ZkError(error.code, error.path) if isinstance(error, ZkError) else type(error)(*error.args)


class _Call(NamedTuple, Generic[Q, R]):
    """A call that waits: what it asks, its weight, the session that it is of, and its caller."""

    asked: Q
    weight: int
    session: int
    future: asyncio.Future[R]


class _Calls(Generic[Q, R]):
    """Calls of one kind, in the order in which they came.

    ``carry_out`` returns for each call its result or its error; what it raises all of them get. ``weight_max``: of all
    calls that go at once, unless one alone weighs more.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        carry_out: Callable[[Sequence[Q]], Awaitable[Sequence[R | Exception]]],
        weigh: Callable[[Q], int],
        weight_max: Callable[[], int],
    ) -> None:
        self._zk = zk
        self._carry_out, self._weigh, self._weight_max = carry_out, weigh, weight_max
        self._waiting: deque[_Call[Q, R]] = deque()
        self._sent: Sequence[_Call[Q, R]] = ()
        self._serving: asyncio.Task[None] | None = None

    async def call(self, asked: Q) -> R:
        """Returns the result of a call. One that is cancelled before it goes is not carried out."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(asked, self._weigh(asked), self._zk.session_id, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve(), name="gathered")
            self._serving.add_done_callback(self._over)
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # tasks that have just got their results may have their next calls
            self._sent = self._some()
            if self._sent:
                for one, result in zip(self._sent, await self._results(), strict=True):
                    _end(one, result)
            self._sent = ()

    async def _results(self) -> Sequence[R | Exception]:
        """Returns the results of the calls that were sent. A fault fails these calls alone."""
        try:
            return await self._carry_out([one.asked for one in self._sent])
        except Exception as error:
            return [error] * len(self._sent)

    def _some(self) -> list[_Call[Q, R]]:
        """Takes the calls that go next."""
        some: list[_Call[Q, R]] = []
        weight, most, session = 0, self._weight_max(), self._zk.session_id
        while self._waiting and len(some) < CALLS_MAX:
            weight += self._waiting[0].weight
            if some and weight > most:
                break
            one = self._waiting.popleft()
            if one.session != session:
                _end(one, SessionLost(OVER))
            elif not one.future.done():
                some.append(one)
        return some

    def _over(self, serving: asyncio.Task[None]) -> None:
        """Ends the calls of a task that was cancelled, or that fails."""
        if not serving.cancelled() and serving.exception() is None:
            return  # calls that wait now have a task of their own
        sent, waiting, self._sent = self._sent, list(self._waiting), ()
        self._waiting.clear()
        error = None if serving.cancelled() else serving.exception()
        for one in sent:
            _end(one, error or OutcomeUnknown("it was sent, and nothing waits for its response any more"))
        for one in waiting:
            _end(one, error or NotConnected("nothing sends it any more"))


def _end(call: _Call[Q, R], result: R | BaseException) -> None:
    if call.future.done():
        return
    if isinstance(result, BaseException):
        call.future.set_exception(result)
    else:
        call.future.set_result(result)
