"""Stands in for regent's daemon: tests say what it does with servers and regions, and it answers clients."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from regent_agent import codec, protocol
from regent_agent.codec import BadFrame
from regent_agent.connection import Address
from regent_agent.protocol import (
    Accepted,
    Changes,
    Close,
    Follow,
    Hello,
    Independent,
    Leave,
    Left,
    ListRoutes,
    Loads,
    Locate,
    Open,
    Operation,
    Operations,
    Poll,
    Refused,
    Regions,
    Register,
    Registered,
    Report,
    Request,
    Response,
    Result,
    Route,
    Routes,
    Source,
    Task,
    Welcome,
    Work,
)

EPOCH = 1
HOLD_S = 0.2
LEASE_MS = 60_000


class Member:
    """One process of a server."""

    def __init__(self, registration: Register) -> None:
        self.incarnation, self.address = registration.incarnation, registration.address
        self.operations: asyncio.Queue[Operation] = asyncio.Queue()
        self.polls = 0


class Daemon:
    """Holds members and routes. ``dead``: servers that are told so; others of their name are not."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.routes: dict[int, Route] = {}
        self.dead: set[str] = set()
        self.fence = "log"
        self.address: Address = ("127.0.0.1", 0)
        self._sequences: dict[int, int] = {}
        self._sources: dict[int, list[Source]] = {}
        self._heirs = itertools.count(100)
        self._pids = itertools.count(1)
        self._results: dict[int, asyncio.Future[Result]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._moves: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()
        try:
            yield self
        finally:
            server.close()
            tasks = [*self._connections, *self._moves.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- what tests have it do

    def create(self, region: int, start: bytes = b"", end: bytes = b"") -> None:
        self.routes[region] = Route(region, "t", start, end)
        self._sequences[region] = 0

    async def open(self, region: int, server: str) -> None:
        route, token = self.routes[region], next(self._pids)
        about = (region, token, route.table, route.start, route.end, self._sequences[region])
        result = await self.send(server, Open(token, *about, sources=self._sources.get(region, [])))
        assert result.outcome == protocol.OPENED, result
        assert result.sequence > self._sequences[region]
        self._sequences[region] = result.sequence
        self.routes[region] = replace(route, token=token, server=server, address=self.members[server].address)

    async def move(self, region: int, server: str) -> None:
        route = self.routes[region]
        self.routes[region] = replace(route, token=0, server="", address="")
        result = await self.send(route.server, Close(next(self._pids), region, route.token))
        assert result.outcome == protocol.CLOSED, result
        await self.open(region, server)

    async def reshape(self, parents: list[int], *keys: bytes) -> list[int]:
        """Closes neighbours, and makes heirs that have their keys, the second and later ones from these keys on."""
        routes = [self.routes[number] for number in parents]
        for route in routes:
            self.routes[route.region] = replace(route, token=0, server="", address="")
            result = await self.send(route.server, Close(next(self._pids), route.region, route.token))
            assert result.outcome == protocol.CLOSED, result
        sources = [Source(one.region, one.start, one.end, one.token, self._sequences[one.region]) for one in routes]
        heirs = []
        for start, end in itertools.pairwise((routes[0].start, *keys, routes[-1].end)):
            self.create(heir := next(self._heirs), start, end)
            self._sources[heir] = sources
            heirs.append(heir)
        for number in parents:
            del self.routes[number]
        return heirs

    def are_independent(self, heirs: list[int]) -> bool:
        """Returns whether these regions need their sources no more."""
        return not any(self._sources[heir] for heir in heirs)

    async def discard(self, region: int, server: str) -> None:
        """Has a server discard a region's data."""
        work = Work(next(self._pids), protocol.DISCARD, data=b"%d" % region)
        result = await self.send(server, work)
        assert result.outcome == protocol.DONE, result

    async def take_over(self, dead: str, server: str) -> None:
        """Has a server fence the dead one, split its log, and open its regions."""
        incarnation = self.members[dead].incarnation
        for part in (await self._task(server, "fence", dead, incarnation)).parts:
            await self._task(server, "split", dead, incarnation, part)
        for region in [route.region for route in self.routes.values() if route.server == dead]:
            await self.open(region, server)

    async def send(self, server: str, operation: Operation) -> Result:
        """Gives an operation to a server, and waits for its result."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._results[operation.pid] = result
        self.members[server].operations.put_nowait(operation)
        async with asyncio.timeout(60):
            return await result

    async def _task(self, server: str, what: str, dead: str, incarnation: int, part: str = "") -> Result:
        result = await self.send(server, Task(next(self._pids), what, dead, incarnation, part))
        assert result.outcome == protocol.DONE, result
        return result

    # -- connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        with contextlib.suppress(OSError, EOFError, BadFrame, asyncio.CancelledError):
            while True:
                [length] = codec.LENGTH.unpack(await reader.readexactly(codec.LENGTH.size))
                request = codec.decode_request(await reader.readexactly(length))
                writer.write(codec.encode(await self._respond(request)))
        writer.close()

    async def _respond(self, request: Request) -> Response:
        match request:
            case Hello():
                return Welcome(protocol.VERSION, EPOCH, "stand-in")
            case Register() | Poll() | Report() | Regions() | Independent() | Loads() | Leave() if (
                request.server in self.dead
            ):
                return Refused(protocol.DEAD, f"{request.server} is fenced")
            case Register():
                self.members[request.server] = Member(request)
                registered = Registered(EPOCH, LEASE_MS, int(HOLD_S * 1000), suspends=False, fence=self.fence)
                return replace(registered, requests=["independent", "loads"])
            case Poll() if request.server not in self.members:
                return Refused(protocol.REGISTER, f"{request.server} is to register")
            case Poll():
                return await self._operations(self.members[request.server])
            case Report() | Regions() | Independent() | Loads():
                self._take(request)
                return Accepted()
            case Leave():
                return self._leave(request.server)
            case _:
                return await self._look_up(request)

    def _take(self, request: Report | Regions | Independent | Loads) -> None:
        if isinstance(request, Report):
            for result in request.results:
                if not self._results[result.pid].done():
                    self._results[result.pid].set_result(result)
        if isinstance(request, Independent):
            for owned in request.regions:
                route = self.routes.get(owned.region)
                if route is not None and route.token == owned.token:
                    self._sources[owned.region] = []

    async def _operations(self, member: Member) -> Operations:
        member.polls += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                return Operations(EPOCH, member.polls, [await member.operations.get()])
        return Operations(EPOCH, member.polls)

    def _leave(self, server: str) -> Left:
        has = [route.region for route in self.routes.values() if route.server == server]
        others = [name for name in self.members if name != server]
        if not others:
            return Left(len(has))
        if server not in self._moves:
            self._moves[server] = asyncio.create_task(self._move_all(has, others))
        return Left(0 if self._moves[server].done() else max(1, len(has)))

    async def _move_all(self, numbers: list[int], others: list[str]) -> None:
        for number in numbers:
            await self.move(number, others[0])

    async def _look_up(self, request: Request) -> Response:
        match request:
            case Locate(table, key):
                found = [r for r in self.routes.values() if r.start <= key and (not r.end or key < r.end)]
                assert table == "t"
                return Routes(EPOCH, 1, found)
            case ListRoutes():
                return Routes(EPOCH, 1, list(self.routes.values()))
            case Follow():
                await asyncio.sleep(HOLD_S)
                return Changes(EPOCH, 1)
        raise AssertionError(request)
