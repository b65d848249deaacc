"""Carries out the daemon's operations: many side by side, those of one region one after the other."""

from __future__ import annotations

import asyncio
import logging
import operator
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from regent_agent import protocol
from regent_agent.answers import Answers
from regent_agent.outbox import Outbox
from regent_agent.protocol import (
    BUSY,
    CLOSED,
    COMMIT,
    DATA_BYTES_MAX,
    DONE,
    FAILED,
    FAILED_OPEN,
    NOT_RUNNING,
    OPENED,
    OWNED_MAX,
    SEQUENCE_MAX,
    Close,
    Open,
    Operation,
    Owned,
    Published,
    Result,
    Task,
)
from regent_agent.service import NotRunning, OpenedRegion, Service

log = logging.getLogger("regent_agent")

FENCE: Final = "fence"
SPLIT: Final = "split"
PROCESS: Final = 0
"""Stands for the process itself; regions have positive ids."""
NOT_MINE: Final = "its znode does not name this server and token: another server has it by now, or it is not gone yet"
PHASES: Final = frozenset({protocol.STAGE, protocol.UNSTAGE, protocol.COMMIT})


class NotHere(Exception):
    """Work on a region that this server does not have open with the token of the work."""


class Work:
    """Holds the operations that wait or run, and the regions that this server has.

    ``opened``: the regions that are open. A region leaves it before it is closed, so that no request is answered then.
    ``running``: the operations in progress, for the agent to cancel. ``published``: values that count, by name.
    """

    def __init__(
        self,
        service: Service,
        outbox: Outbox,
        may_begin: Callable[[], bool],
        *,
        side_by_side_max: int,
        queue_max: int,
    ) -> None:
        self.answers: Answers | None = None
        """Where operations are answered, None where their results are reported."""
        self._service, self._outbox, self._may_begin = service, outbox, may_begin
        self._side_by_side_max, self._queue_max = side_by_side_max, queue_max
        self.opened: dict[int, OpenedRegion] = {}
        self.published: dict[str, Published] = {}
        self._closing: dict[int, OpenedRegion] = {}
        self._known: dict[int, Operation] = {}
        self._ready: deque[Operation] = deque()
        self._behind: dict[int, deque[Operation]] = {}
        """Operations that wait for another one of their region, by region."""
        self._busy: set[int] = set()
        self.running: set[asyncio.Task[None]] = set()

    def add(self, operation: Operation) -> None:
        """Takes an operation. One that it knows is not done again, but its result is sent again."""
        pid = operation.pid
        if pid in self._known or self._outbox.repeat(pid):
            return
        if len(self._known) - len(self.running) >= self._queue_max:
            self._outbox.add(Result(pid, BUSY, text=f"{self._queue_max} operations wait at this server"))
            return
        has = len(self.opened) + len(self._closing) + len(self._known)
        if isinstance(operation, Open) and has >= OWNED_MAX:
            self._outbox.add(Result(pid, FAILED_OPEN, text=f"this server has {OWNED_MAX} regions, which is the most"))
            return
        self._known[pid] = operation
        if isinstance(operation, Task):
            self._ready.appendleft(operation)  # all regions of a crashed server wait for it
        else:
            self._ready.append(operation)
        self.begin()

    def begin(self) -> None:
        """Begins operations that wait, as far as the bound and the lease admit.

        Without a valid lease none begins: its region may be with another server already.
        """
        while self._ready and len(self.running) < self._side_by_side_max and self._may_begin():
            operation = self._ready.popleft()
            region = _region(operation)
            if region in self._busy:
                self._behind.setdefault(region, deque()).append(operation)
                continue
            if region is not None:
                self._busy.add(region)
            task = asyncio.create_task(self._run(operation, region), name=f"pid={operation.pid}")
            self.running.add(task)
            task.add_done_callback(self.running.discard)

    def owned(self) -> list[Owned]:
        """Returns all regions that this server has, those included that it is about to open or has not closed yet."""
        tokens = {region.region: region.token for region in (*self._closing.values(), *self.opened.values())}
        for operation in self._known.values():
            if isinstance(operation, Open):
                tokens[operation.region] = max(operation.token, tokens.get(operation.region, 0))
        return [Owned(region, token) for region, token in tokens.items()]

    def has(self, value: Published) -> None:
        """Enters a value that was published, unless a later one is here."""
        if (known := self.published.get(value.name)) is None or known.number <= value.number:
            self.published[value.name] = value

    async def _run(self, operation: Operation, region: int | None) -> None:
        result = await self._result(operation)
        del self._known[operation.pid]
        if result is not None:
            self._outbox.add(result)
        if region is not None:
            self._busy.discard(region)
            if waiting := self._behind.get(region):
                self._ready.appendleft(waiting.popleft())
                if not waiting:
                    del self._behind[region]
        task = asyncio.current_task()
        assert task is not None
        self.running.discard(task)
        self.begin()

    async def _result(self, operation: Operation) -> Result | None:
        """Does an operation; returns what is to be reported, None where a znode says it."""
        pid = operation.pid
        try:
            match operation:
                case Open():
                    return await self._open(operation)
                case Close():
                    return await self._close(operation)
                case Task():
                    return Result(pid, DONE, parts=await self._task(operation))
                case protocol.Work():
                    return Result(pid, DONE, data=await self._do(operation))
        except NotRunning as error:
            return Result(pid, NOT_RUNNING, text=str(error))
        except NotHere as error:
            return Result(pid, FAILED, text=str(error))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            outcome = FAILED_OPEN if isinstance(operation, Open) else FAILED  # something that it waited for was
            return Result(pid, outcome, text=f"a part of it was cancelled: {error}")
        except Exception as error:
            log.exception(
                "%s failed; the daemon sends it again, or gives the region to another server", _name(operation)
            )
            outcome = FAILED_OPEN if isinstance(operation, Open) else FAILED
            return Result(pid, outcome, text=f"{type(error).__name__}: {error}")

    async def _open(self, operation: Open) -> Result | None:
        pid, number = operation.pid, operation.region
        has = self.opened.get(number) or self._closing.get(number)
        if has is not None:
            if has.token > operation.token:
                return Result(pid, FAILED_OPEN, text=f"region {number} is here with the higher token {has.token}")
            if has.token == operation.token and number in self.opened:
                answers = self.answers
                told = answers is not None and await self._has_told(operation, answers.opened(operation, has.sequence))
                return None if told else Result(pid, OPENED, has.sequence)
            await self._close_region(has)
        if self.answers is not None and not await self.answers.begins(operation):
            return Result(pid, FAILED_OPEN, text=NOT_MINE)
        region = OpenedRegion(
            number,
            operation.table,
            operation.start,
            operation.end,
            operation.token,
            operation.sequence,
            operation.options,
            tuple(operation.sources),
        )
        found = await self._service.open(region)
        try:
            sequence = _checked(found)
        except (TypeError, ValueError):
            await self._close_region(region)  # another server gets it
            raise
        return await self._is_open(operation, msgspec.structs.replace(region, sequence=sequence))

    async def _is_open(self, operation: Open, region: OpenedRegion) -> Result | None:
        """Serves a region from now on, unless its znode is another server's."""
        if self.answers is None:
            self.opened[region.region] = region
            return Result(operation.pid, OPENED, region.sequence)
        answers = self.answers
        try:
            if await answers.opened(operation, region.sequence):
                self.opened[region.region] = region
                return None if self.answers is answers else Result(operation.pid, OPENED, region.sequence)
        except Exception:
            await self._close_region(region)  # a daemon that takes it for open finds it missing from a list
            raise
        await self._close_region(region)
        return Result(operation.pid, FAILED_OPEN, text=NOT_MINE)

    async def _close(self, operation: Close) -> Result | None:
        has = self.opened.get(operation.region) or self._closing.get(operation.region)
        mine = has is not None and has.token <= operation.token
        answers = None if operation.reported else self.answers
        try:
            may_close = answers is None or await answers.begins(operation)
        except Exception as error:
            log.warning("%s has no znode, and is reported: %s", _name(operation), error)
            answers, may_close = None, True
        if mine and not may_close:
            return Result(operation.pid, FAILED, text=NOT_MINE)
        if has is not None and mine:
            await self._close_region(has)
        told = answers is not None and await self._has_told(operation, answers.closed(operation))
        return None if told else Result(operation.pid, CLOSED)

    async def _has_told(self, operation: Open | Close, move: Awaitable[bool]) -> bool:
        """Moves the znode of an operation that is done; returns whether a daemon that reads it has the answer.

        The daemon may have become one that reads no znodes meanwhile, or the session of this server has ended.
        """
        try:
            return await move and self.answers is not None
        except Exception as error:
            log.warning("%s is reported, because its znode cannot be moved: %s", _name(operation), error)
            return False

    async def _close_region(self, region: OpenedRegion) -> None:
        self.opened.pop(region.region, None)
        self._closing[region.region] = region
        await self._service.close(region)
        del self._closing[region.region]

    async def _task(self, task: Task) -> list[str]:
        if task.what == FENCE:
            return list(await self._service.fence(task.server, task.incarnation))
        if task.what == SPLIT:
            await self._service.split(task.server, task.incarnation, task.part)
            return []
        raise ValueError(f"this version of the agent knows no task {task.what!r}: update it")

    async def _do(self, work: protocol.Work) -> bytes:
        region = None
        if work.region:
            region = self.opened.get(work.region)
            if region is None or region.token != work.token:
                has = "closed" if region is None else f"open with token {region.token}"
                raise NotHere(f"region {work.region} is {has} here, and the work is for token {work.token}")
        found = await self._service.work(work.what, region, work.data)
        if not isinstance(found, bytes):
            raise TypeError(f"work returned {type(found).__name__}, expected bytes")
        if len(found) > DATA_BYTES_MAX:
            raise ValueError(f"work returned {len(found)} bytes, at most {DATA_BYTES_MAX} are sent")
        if work.what == COMMIT and not work.region:
            self.has(msgspec.msgpack.decode(work.data, type=Published))
        return found


def _checked(sequence: object) -> int:
    """Returns what an open returned; raises where the daemon could not store it, or a service forgot to return it."""
    found = operator.index(sequence)  # type: ignore[arg-type]
    if not 0 <= found <= SEQUENCE_MAX:
        raise ValueError(f"open returned the sequence number {found}, expected 0 to {SEQUENCE_MAX}")
    return found


def _region(operation: Operation) -> int | None:
    """Returns what has its operations done one after the other: a region, or 0 for the phases of a process's values."""
    if isinstance(operation, protocol.Work) and not operation.region:
        return PROCESS if operation.what in PHASES else None
    return None if isinstance(operation, Task) else operation.region


def _name(operation: Operation) -> str:
    match operation:
        case Open():
            return f"pid={operation.pid} open of region {operation.region} of table {operation.table}"
        case Close():
            return f"pid={operation.pid} close of region {operation.region}"
        case Task():
            return f"pid={operation.pid} {operation.what} {operation.part} of server {operation.server}"
        case protocol.Work():
            return f"pid={operation.pid} work {operation.what!r} on region {operation.region or 'none'}"
