"""Sends messages of one procedure to many processes of the service, as work of each process (see ``broadcast``).

Each message is an operation with a number of its own. It is awaited until the process responds, or cannot serve any
more: one that is fenced, or has left, counts as done, because the next process learns everything as it registers. No
time decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from controller.procedures.broadcast import Rejected, Responses, Unreachable
from controller.regions.dispatcher import Dispatcher, Key, Results, said
from regent_agent import protocol
from regent_agent.protocol import Result, Work
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

BLOCK: Final = 1_000
"""Numbers that are reserved together."""
NOT_DONE: Final = frozenset({protocol.BUSY, protocol.NOT_RUNNING})


class _Awaited(NamedTuple):
    """A message under way. ``came``: its result, None once the process cannot serve any more."""

    key: Key
    came: asyncio.Future[Result | None]


class Bus:
    """Holds the messages under way. ``reserve``: returns the first of new numbers, durably."""

    def __init__(
        self, model: Regions, dispatcher: Dispatcher, results: Results, reserve: Callable[[int], Awaitable[int]]
    ) -> None:
        self._model, self._dispatcher, self._results, self._reserve = model, dispatcher, results, reserve
        self._next = self._end = 0
        self._awaited: dict[int, _Awaited] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.responses = Responses(self._spawn)

    # -- for steps

    async def ready(self, count: int) -> None:
        """Has numbers for so many messages, and ends the wait for processes that cannot serve any more."""
        if self._end - self._next < count:
            count = max(count, BLOCK)
            self._next = await self._reserve(count)
            self._end = self._next + count
        for one in self._awaited.values():
            if self._model.is_fenced(one.key) and not one.came.done():
                one.came.set_result(None)

    def sending(self, what: str) -> Callable[[str, bytes], Awaitable[str]]:
        """Returns what sends a message to a process by its name, as work of that kind."""

        async def send(server: str, message: bytes) -> str:
            return await self._sent(server, what, message)

        return send

    # -- for reports

    def awaits(self, number: int) -> bool:
        """Checks whether an operation is a message under way."""
        return number in self._awaited

    def came(self, results: Iterable[Result]) -> None:
        """Takes results of processes; those of other operations are left alone."""
        if not self._awaited:
            return
        for one in results:
            if (found := self._awaited.get(one.pid)) is not None and not found.came.done():
                found.came.set_result(one)

    def close(self) -> None:
        """Ends all waits: the term is over."""
        for task in self._tasks:
            task.cancel()

    async def _sent(self, server: str, what: str, message: bytes) -> str:
        name, _, incarnation = server.rpartition(",")
        key = name, int(incarnation)
        if self._model.is_fenced(key):
            return "gone"
        process = self._model.servers[key]
        if process.state is not ServerState.ONLINE:
            raise Unreachable(f"{server} crashed: it is fenced first")
        if not process.here:
            raise Unreachable(f"{server} has not registered at this daemon yet")
        if self._next == self._end:
            raise Unreachable("no numbers are left: it is sent soon")
        number, self._next = self._next, self._next + 1
        found = self._awaited[number] = _Awaited(key, asyncio.get_running_loop().create_future())
        self._dispatcher.send(process, Work(number, what, data=message))
        try:
            result = await found.came
        finally:
            del self._awaited[number]
            self._dispatcher.forget(number)
            self._results.used(number)
        if result is None:
            return "gone"
        if result.outcome == protocol.DONE:
            return ""
        text = said(server, result)
        raise Unreachable(text) if result.outcome in NOT_DONE else Rejected(text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
