"""Makes agents with a recording service, and stands in for a daemon whose responses a test scripts."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

from regent_agent.agent import Agent
from regent_agent.codec import LENGTH, decode_request, encode
from regent_agent.options import AgentOptions
from regent_agent.protocol import (
    REGISTER,
    VERSION,
    Accepted,
    Close,
    Hello,
    Independent,
    Loads,
    Open,
    Operation,
    Operations,
    Poll,
    Published,
    Refused,
    Regions,
    Register,
    Registered,
    Report,
    Request,
    Response,
    Result,
    Task,
    Welcome,
    Work,
)
from regent_agent.service import OpenedRegion
from tests.kit.deadlines import WITHIN_S, eventually

Respond = Callable[[Request], Awaitable[Response | bytes | None]]
M = TypeVar("M", bound=Request)


class StandIn:
    """A daemon with one server as its member.

    ``responses``: functions of the test that respond to a kind of request; None as a response ends the connection.
    ``requests`` has all that arrived. ``again``: pids that are not accepted yet. ``knows``: tags of newer requests.
    ``published``: values for who registers.
    """

    def __init__(self, epoch: int = 1, *, lease_ms: int = 60_000, hold_ms: int = 200, suspends: bool = True) -> None:
        self.epoch, self.lease_ms, self.hold_ms, self.suspends = epoch, lease_ms, hold_ms, suspends
        self.requests: list[Request] = []
        self.responses: dict[type[Request], Respond] = {}
        self.again: set[int] = set()
        self.knows: list[str] = []
        self.published: list[Published] = []
        self.address = ("127.0.0.1", 0)
        self.connections: set[asyncio.StreamWriter] = set()
        self._pending: list[Operation] = []
        self._list = False
        self._number = 0
        self._registrations = 0
        self._given = Operations(epoch, 0, [])
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- used by tests

    def send(self, *operations: Operation, list_regions: bool = False) -> None:
        """Gives operations to the next poll."""
        self._pending.extend(operations)
        self._list |= list_regions
        self._news.set()

    def seen(self, kind: type[M]) -> list[M]:
        return [request for request in self.requests if isinstance(request, kind)]

    def results(self) -> list[Result]:
        return [result for report in self.seen(Report) for result in report.results]

    async def result(self, pid: int, count: int = 1) -> Result:
        """Waits until the result of ``pid`` has arrived ``count`` times."""

        def arrived() -> list[Result]:
            found = [result for result in self.results() if result.pid == pid]
            return found if len(found) >= count else []

        return (await eventually(arrived))[count - 1]

    async def arrived(self, kind: type[M], count: int = 1) -> M:
        return (await eventually(lambda: found if len(found := self.seen(kind)) >= count else []))[count - 1]

    def close(self) -> None:
        """Ends all connections once what was written has arrived."""
        for writer in self.connections:
            writer.close()

    def cut(self) -> None:
        """Ends all connections."""
        for writer in self.connections:
            writer.transport.abort()

    # -- the daemon

    @asynccontextmanager
    async def running(self, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", port, ssl=tls)
        self.address = server.sockets[0].getsockname()
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while True:
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                request = decode_request(await reader.readexactly(length))
                self.requests.append(request)
                respond = self.responses.get(type(request), self.respond)
                response = await respond(request)
                if response is None:
                    return
                writer.write(response if isinstance(response, bytes) else encode(response))
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self.connections.discard(writer)
            writer.transport.abort()

    async def respond(self, request: Request) -> Response:
        match request:
            case Poll(epoch=epoch) | Report(epoch=epoch) | Regions(epoch=epoch) if epoch != self.epoch:
                return Refused(REGISTER, f"the epoch is {self.epoch}")
            case Hello():
                return Welcome(VERSION, self.epoch, "stand-in")
            case Register():
                self._registrations += 1
                self._given = Operations(self.epoch, 0, [])
                return Registered(
                    self.epoch,
                    self.lease_ms,
                    self.hold_ms,
                    self.suspends,
                    requests=self.knows,
                    published=self.published,
                )
            case Poll(taken=taken) if taken < self._given.number:
                return self._given  # the response was lost
            case Poll():
                return await self._operations()
            case Report(results=results):
                return Accepted([result.pid for result in results if result.pid in self.again])
            case Regions() | Loads():
                return Accepted()
            case Independent(regions=regions):
                return Accepted([one.region for one in regions if one.region in self.again])
        raise AssertionError(f"the test scripts no response to {request}")

    async def _operations(self) -> Operations:
        """Holds a poll; one of a former registration takes nothing of what the next is to have."""
        registration = self._registrations
        try:
            async with asyncio.timeout(self.hold_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            pass
        if registration != self._registrations:
            return Operations(self.epoch, self._number, [])
        self._news.clear()
        operations, self._pending = self._pending, []
        lists, self._list = self._list, False
        self._number += 1
        self._given = Operations(self.epoch, self._number, operations, lists)
        return self._given


class Recorded:
    """A service that notes its calls. ``hold`` keeps regions from finishing their open or close."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.hold: dict[int, asyncio.Event] = {}
        self.failures: dict[str, list[BaseException]] = {}
        self.inside = 0
        self.inside_max = 0
        self.sequence = 100

    async def open(self, region: OpenedRegion) -> int:
        await self._do("open", region.region, region.token)
        self.sequence += 1
        return self.sequence

    async def close(self, region: OpenedRegion) -> None:
        await self._do("close", region.region, region.token)

    async def fence(self, server: str, incarnation: int) -> list[str]:
        await self._do("fence", server, incarnation)
        return [f"{server}/1", f"{server}/2"]

    async def split(self, server: str, incarnation: int, part: str) -> None:
        await self._do("split", server, part)

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        await self._do(what, None if region is None else region.region, data)
        return data[::-1]

    def suspend(self) -> None:
        self.calls.append(("suspend",))

    def resume(self) -> None:
        self.calls.append(("resume",))

    async def _do(self, what: str, *entities: Any) -> None:
        self.calls.append((what, *entities))
        self.inside += 1
        self.inside_max = max(self.inside_max, self.inside)
        try:
            if (event := self.hold.get(entities[0])) is not None:
                await event.wait()
            if failures := self.failures.get(what):
                raise failures.pop(0)
        finally:
            self.inside -= 1


class Clock:
    """A clock that only the test advances."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def options(*daemons: StandIn, **others: Any) -> AgentOptions:
    addresses = tuple(daemon.address for daemon in daemons)
    return AgentOptions(**{"daemons": addresses, "server": "s1", "address": "s1:7000", "incarnation": 5, **others})


@asynccontextmanager
async def started(
    service: Recorded, *daemons: StandIn, clock: Callable[[], float] = time.monotonic, **others: Any
) -> AsyncIterator[Agent]:
    """Runs an agent that is registered. A ``clock`` of the test is its wall clock, too: no pause ends its lease."""
    wall = time.time if clock is time.monotonic else clock
    agent = Agent(service, options(*daemons, **others), jitter=lambda: 0.0, clock=clock, wall=wall)
    try:
        async with asyncio.timeout(WITHIN_S):
            await agent.start()
        yield agent
    finally:
        await agent.stop()


def opens(pid: int, region: int, token: int | None = None, **others: Any) -> Open:
    return Open(pid, region, pid if token is None else token, "t", b"", b"", **others)


def closes(pid: int, region: int, token: int) -> Close:
    return Close(pid, region, token)


def works(pid: int, what: str, region: int = 0, token: int = 0, data: bytes = b"") -> Work:
    return Work(pid, what, region, token, "t" if region else "", data)


def task(pid: int, what: str, part: str = "") -> Task:
    return Task(pid, what, "s9", 3, part)
