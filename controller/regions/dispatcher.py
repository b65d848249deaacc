"""Sends operations to servers in batches, as responses to their polls, until each has its result.

An operation goes to one process of a server alone: a lost response means nothing about it, so it is sent again to the
same process, and to another one only once its procedure finds this one fenced (HBase ``RemoteProcedureDispatcher``).
Results are kept until the steps that wait for them have used them, durably.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from configs.regions_section import RegionsSettings
from regent_agent import protocol
from regent_agent.protocol import Open, Operation, Operations, Result, Task, Work
from state_machines.regions.entities import Server
from state_machines.regions.transit import Answer

Key = tuple[str, int]
"""Name and incarnation of a server."""
Tell = Callable[[Server, int, Sequence[Operation]], None]
"""Takes a batch that goes to a process for the first time, and its number; must not wait or raise."""
KEYS: Final = RegionsSettings.model_fields
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
HEAD_BYTES: Final = 1_000
SOURCE_BYTES: Final = 300
"""Bytes of a source without its keys, with the longest name of a snapshot."""
WORKERS_MAX: Final = 10
"""Processes whose work on a log is accepted: without a result in time it is given to another one, again and again."""
HOLD_FRACTION: Final = 4
"""A poll is held for this part of the lease."""
ANSWERS: Final[Mapping[str, Answer]] = {
    protocol.OPENED: Answer.OPENED,
    protocol.CLOSED: Answer.CLOSED,
    protocol.FAILED_OPEN: Answer.FAILED,
    protocol.FAILED: Answer.FAILED,
    protocol.NOT_RUNNING: Answer.NOT_RUNNING,
    protocol.BUSY: Answer.BUSY,
}
SAID_CHARS_MAX: Final = 300
"""Characters of a server's words that a record keeps."""


class DispatchLimits(msgspec.Struct, frozen=True):
    """Bounds of the dispatch.

    ``delay_ms``: how long the first operation of a batch waits for others. ``batch_max``: operations of a batch, and
    the number at which it no longer waits. ``in_flight_max``: batches that were sent and not confirmed, of all servers.
    """

    delay_ms: int = KEYS["delay_ms"].default
    batch_max: int = KEYS["batch_max"].default
    in_flight_max: int = KEYS["in_flight_max"].default


class _Queue:
    """Operations for one process. ``sent``: the batch that was sent last, until the next poll confirms it.

    ``polls``: polls so far; an earlier one that still waits has lost its connection.
    """

    __slots__ = ("first_s", "number", "polls", "sent", "waiting", "waker")

    def __init__(self) -> None:
        self.waiting: dict[int, Operation] = {}
        self.first_s = 0.0
        self.number = 0
        self.polls = 0
        self.sent: Operations | None = None
        self.waker: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Ends the wait of a poll."""
        if self.waker is not None and not self.waker.done():
            self.waker.set_result(None)


class Dispatcher:
    """Holds the operations for each process. ``clock``: the loop's time, in seconds. ``tell``: receives each batch."""

    reads_nodes = False
    """Whether servers may answer by znodes."""

    def __init__(self, epoch: int, limits: DispatchLimits, clock: Callable[[], float], tell: Tell) -> None:
        self._epoch = epoch
        self._limits = limits
        self._clock = clock
        self._tell = tell
        self._queues: dict[Key, _Queue] = {}
        self._expected: dict[int, Key] = {}
        self.sent = 0
        """Operations that were sent."""
        self._workers: dict[int, dict[Key, None]] = {}
        """Of work on logs: the processes that were to do it, the latest ones."""
        self._numbers: dict[int, int] = {}
        """Of the batches in which operations that are expected were sent last."""
        self._in_flight = 0
        self._blocked: list[_Queue] = []
        self._lists: set[Key] = set()

    def shows(self, region: int) -> str:
        """Returns a sentence about the znode of a region; empty where servers answer by reports alone."""
        return ""

    # -- for procedures

    def send(self, server: Server, operation: Operation) -> None:
        """Queues an operation; the same pid again replaces it."""
        key, pid = server.key, operation.pid
        queue = self._queue(key)
        if not queue.waiting:
            queue.first_s = self._clock()
        queue.waiting[pid] = operation
        self._expected[pid] = key
        if isinstance(operation, Task):
            workers = self._workers.setdefault(pid, {})
            workers.pop(key, None)
            workers[key] = None
            if len(workers) > WORKERS_MAX:
                del workers[next(iter(workers))]
        if len(queue.waiting) == 1 or len(queue.waiting) >= self._limits.batch_max:
            queue.wake()

    def forget(self, pid: int) -> None:
        """Removes an operation whose procedure goes on without its result."""
        self.take_back(pid)
        self._workers.pop(pid, None)

    def take_back(self, pid: int) -> None:
        """Removes work on a log from its server; another one is to do it, but what this one has done still counts."""
        key = self._expected.pop(pid, None)
        if key is not None and (queue := self._queues.get(key)) is not None:
            queue.waiting.pop(pid, None)
        self._numbers.pop(pid, None)

    def hold_back(self, pid: int) -> None:
        """Does not send an operation any more, unless it was sent: its result is here."""
        key = self._expected.get(pid)
        if key is not None and (queue := self._queues.get(key)) is not None:
            queue.waiting.pop(pid, None)

    def has_arrived(self, pid: int, taken: int) -> bool:
        """Checks whether an operation is not on its way to a server that has taken the batch of a number."""
        return taken >= self._numbers.get(pid, 0)

    def expects(self, pid: int) -> Key | None:
        """Returns the process whose result is awaited for a pid."""
        return self._expected.get(pid)

    def is_worker(self, pid: int, key: Key) -> bool:
        """Checks whether a process was to do work on a log."""
        return key in self._workers.get(pid, ())

    # -- for servers

    def list_regions(self, server: Server) -> None:
        """Has the server list its regions: with the next response to a poll of it."""
        self._lists.add(server.key)

    def drop(self, server: Server) -> None:
        """Removes the queue of a process that gets nothing any more."""
        queue = self._queues.pop(server.key, None)
        if queue is not None:
            self._confirm(queue)
            queue.wake()
        self._lists.discard(server.key)

    async def poll(self, server: Server, taken: int, hold_s: float) -> Operations:
        """Returns the next operations of a server, none after ``hold_s``. A batch that was not taken is sent again."""
        queue = self._queue(server.key)
        if queue.sent is not None:
            if taken < queue.sent.number:
                return queue.sent
            self._confirm(queue)
        queue.polls += 1
        mine = queue.polls
        queue.wake()
        ends_s = self._clock() + hold_s
        while (wait_s := self._wait_s(queue, ends_s)) > 0:
            await self._woken(queue, wait_s)
            if self._queues.get(server.key) is not queue or queue.polls != mine:
                return Operations(self._epoch, taken)
        return self._batch(server, queue)

    def _queue(self, key: Key) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        return queue

    def _wait_s(self, queue: _Queue, ends_s: float) -> float:
        left_s = ends_s - self._clock()
        if not queue.waiting:
            return left_s
        if self._in_flight >= self._limits.in_flight_max:
            self._blocked.append(queue)
            return left_s
        if len(queue.waiting) >= self._limits.batch_max:
            return 0
        return min(left_s, queue.first_s + self._limits.delay_ms / 1000 - self._clock())

    async def _woken(self, queue: _Queue, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        waker = queue.waker = loop.create_future()
        timer = loop.call_later(wait_s, queue.wake)
        try:
            await waker
        finally:
            timer.cancel()
            if queue.waker is waker:
                queue.waker = None

    def _batch(self, server: Server, queue: _Queue) -> Operations:
        pids = self._fitting(queue)
        if self._in_flight >= self._limits.in_flight_max:
            pids = []
        listed = server.key in self._lists
        self._lists.discard(server.key)
        if not pids:
            return Operations(self._epoch, queue.number, list_regions=listed)
        queue.number += 1
        operations = [queue.waiting.pop(pid) for pid in pids]
        self._numbers.update(dict.fromkeys(pids, queue.number))
        queue.first_s = self._clock()
        queue.sent = Operations(self._epoch, queue.number, operations, listed)
        self._in_flight += 1
        self._tell(server, queue.number, operations)
        self.sent += len(operations)
        return queue.sent

    def _fitting(self, queue: _Queue) -> list[int]:
        """Returns the operations of the next batch, which fit into a frame together; the first one always does."""
        pids: list[int] = []
        size = 0
        for pid, one in queue.waiting.items():
            size += _size(one)
            if len(pids) == self._limits.batch_max or (pids and size > BATCH_BYTES_MAX):
                break
            pids.append(pid)
        return pids

    def _confirm(self, queue: _Queue) -> None:
        if queue.sent is not None:
            queue.sent = None
            self._in_flight -= 1
            blocked, self._blocked = self._blocked, []
            for one in blocked:
                one.wake()


def _size(operation: Operation) -> int:
    """Returns about the bytes of an operation."""
    if isinstance(operation, Work):
        return HEAD_BYTES + len(operation.data)
    if not isinstance(operation, Open):
        return HEAD_BYTES
    options = sum(len(key) + len(value) for key, value in operation.options.items()) if operation.options else 0
    sources = sum(SOURCE_BYTES + len(one.start) + len(one.end) for one in operation.sources) if operation.sources else 0
    return HEAD_BYTES + len(operation.start) + len(operation.end) + 4 * options + sources


class _Batch:
    """Results of one report that are not durable yet."""

    __slots__ = ("done", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Results:
    """Holds results of servers until the steps that wait for them have used them, durably."""

    def __init__(self) -> None:
        self._came: dict[int, Result] = {}
        self._batches: dict[int, tuple[_Batch, ...]] = {}

    def add(self, results: list[Result]) -> Awaitable[None] | None:
        """Keeps results; returns what ends once all are durable."""
        batch = _Batch(len(results))
        alone = (batch,)
        for one in results:
            self._came[one.pid] = one
            before = self._batches.get(one.pid)
            self._batches[one.pid] = alone if before is None else (*before, batch)
        return batch.done if results else None

    def get(self, pid: int) -> Result | None:
        """Returns the result of an operation; it stays until :meth:`used`."""
        return self._came.get(pid)

    def used(self, pid: int) -> None:
        """Notes that the result of an operation is durable, or of no use: the server may forget it."""
        self._came.pop(pid, None)
        for batch in self._batches.pop(pid, ()):
            batch.left -= 1
            if not batch.left and not batch.done.done():
                batch.done.set_result(None)

    def close(self) -> None:
        """Ends all waits: reports without a response are repeated, to the next daemon."""
        for batches in self._batches.values():
            for batch in batches:
                batch.done.cancel()
        self._batches.clear()


def said(server: object, result: Result) -> str:
    """Returns in one line what a server said that could not do something."""
    words = " ".join(result.text[: 2 * SAID_CHARS_MAX].split())
    text = "".join(one if one.isprintable() else "?" for one in words)[:SAID_CHARS_MAX]
    return f"{server} said {result.outcome}{f': {text}' if text else ''}"


def answer_of(result: Result | None) -> Answer:
    """Returns the answer in a result; one that no operation on a region has counts as a failure."""
    return Answer.NONE if result is None else ANSWERS.get(result.outcome, Answer.FAILED)
