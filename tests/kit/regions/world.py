"""Runs one term on a disk in memory, in virtual time, with servers that a test scripts or that open nothing."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from controller.regions.dispatcher import DispatchLimits
from controller.regions.environment import Options
from controller.regions.procedures import move
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from controller.regions.term import RegionsTerm
from regent_agent import codec, protocol
from regent_agent.protocol import Accepted, Open, Operation, Operations, Owned, Refused, Registered, Response, Result
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from state_machines.regions.entities import Region
from state_machines.regions.states import RegionState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.simulation.loop import SimLoop

P = ParamSpec("P")
T = TypeVar("T")
OPTIONS = Options(lease_ms=3_000, startup_wait_ms=1_000, balancer_period_ms=0)
UNTIL_S = 60.0


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = SimLoop()
        failure: list[BaseException] = []

        async def story() -> None:
            try:
                await test(*args, **kwargs)
            except BaseException as error:
                failure.append(error)
            finally:
                loop.halt()

        loop.kept.append(loop.create_task(story()))
        loop.run_forever()
        if failure:
            raise failure[0]
        assert loop.kept[0].done(), "it waits for ever"

    return run


async def until(holds: Callable[[], T]) -> T:
    """Waits until something holds; returns it."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + UNTIL_S
    while not (found := holds()):
        assert loop.time() < ends_s, "it never holds"
        await asyncio.sleep(0.01)
    return found


class Wall:
    """The wall clock of a test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000) + self.ahead_ms


@asynccontextmanager
async def running(
    disk: RegionDisk,
    options: Options = OPTIONS,
    *,
    store: Callable[[RegionDisk], MemoryRegionStore] = MemoryRegionStore,
    wall: Callable[[], int] | None = None,
    placement: str = "retain",
    delay_ms: int = 5,
) -> AsyncIterator[RegionsTerm]:
    """Runs a term; at its end it is gone like a process that was killed."""
    opened = store(disk)
    limits = DispatchLimits(delay_ms=delay_ms)
    term = RegionsTerm(
        opened, opened, opened.epoch, options, wall_ms=wall or Wall(), limits=limits, placement=placement, seed=1
    )
    await term.load()
    task = asyncio.ensure_future(term.run())
    try:
        yield term
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Server:
    """A server of which the test sends each request. ``features``: those with which it registers."""

    features: tuple[str, ...] = ()

    def __init__(self, term: RegionsTerm, name: str, incarnation: int = 1) -> None:
        self.term, self.name, self.incarnation = term, name, incarnation
        self.epoch = self.taken = 0
        self.has: dict[int, int] = {}

    async def ask(self, request: protocol.Request) -> Response:
        return await self.term.service.handle(codec.decode_request(codec.encode(request)[4:]))

    async def register(self, *owned: Owned) -> Registered | Refused:
        found = await self.ask(
            protocol.Register(
                self.name, self.incarnation, f"{self.name}:1", owned=list(owned), features=list(self.features)
            )
        )
        assert isinstance(found, Registered | Refused)
        if isinstance(found, Registered):
            self.epoch, self.taken = found.epoch, 0
        return found

    async def poll(self, *, takes: bool = True) -> list[Operation]:
        """Polls once; without ``takes`` as if the response was lost."""
        found = await self.ask(protocol.Poll(self.name, self.incarnation, self.epoch, self.taken))
        assert isinstance(found, Operations), found
        if takes:
            self.taken = found.number
        return found.operations

    async def operation(self) -> Operation:
        """Polls until there is an operation; it is the only one."""
        while not (found := await self.poll()):
            pass
        assert len(found) == 1
        return found[0]

    async def report(self, *results: Result, taken: int | None = None) -> list[int]:
        """Reports results; returns the pids that are to be sent again."""
        sent = self.taken if taken is None else taken
        found = await self.ask(protocol.Report(self.name, self.incarnation, self.epoch, list(results), sent))
        assert isinstance(found, Accepted), found
        return found.again

    async def serve(self) -> None:
        """Polls for ever, and does what is wanted."""
        while True:
            operations = await self.poll()
            if operations:
                await self.report(*map(self.do, operations))

    def do(self, operation: Operation) -> Result:
        """Does an operation; returns its result."""
        match operation:
            case protocol.Open(region=region, token=token):
                self.has[region] = token
            case protocol.Close(region=region, token=token) if self.has.get(region, 0) <= token:
                self.has.pop(region, None)
        return done(operation)


def done(operation: Operation) -> Result:
    match operation:
        case protocol.Open(pid):
            return Result(pid, protocol.OPENED, 1)
        case protocol.Close(pid):
            return Result(pid, protocol.CLOSED)
        case protocol.Task(pid) | protocol.Work(pid):
            return Result(pid, protocol.DONE)


@asynccontextmanager
async def serving(*servers: Server) -> AsyncIterator[None]:
    """Registers servers with the regions that they have, and has them serve."""
    for server in servers:
        assert isinstance(await server.register(*(Owned(*one) for one in server.has.items())), Registered)
    tasks = [asyncio.ensure_future(server.serve()) for server in servers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def procedure(term: RegionsTerm, kind: str, data: bytes) -> int:
    return await term.engine.submit(kind, data, Caller("User:ops"))


async def ended(term: RegionsTerm, pid: Awaitable[int]) -> bytes:
    record = await term.engine.result(await pid)
    assert record.state is State.SUCCESS, record.error
    return record.result


def creates(term: RegionsTerm, name: str = "t", regions: int = 1) -> Awaitable[int]:
    return procedure(term, "create_table", TABLE_TASK.encode(TableTask(name, uniform=regions)))


def regions_of(term: RegionsTerm, name: str = "t") -> list[Region]:
    return term.env.model.tables[name].regions


def lists(regions: Iterable[Region]) -> list[Owned]:
    return [Owned(one.id, one.token) for one in regions]


S = RegionState


class Broken(Server):
    """A server that opens nothing; ``hangs``: it does not even say so. It closes what it is to close."""

    hangs = False
    opened_s = 0.0

    async def serve(self) -> None:
        while True:
            operations = await self.poll()
            mine = [one for one in operations if not (self.hangs and isinstance(one, Open))]
            if mine:
                await self.report(*map(self.do, mine))

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Open):
            return Result(operation.pid, protocol.FAILED_OPEN, text="no such codec")
        return super().do(operation)


class Hung(Broken):
    """A server whose opens never end."""

    hangs = True


def changes(term: RegionsTerm, kind: str, table: str = "t") -> Awaitable[int]:
    return procedure(term, f"{kind}_table", TABLE_TASK.encode(TableTask(table)))


def transits(term: RegionsTerm, kind: str, region: Region) -> Awaitable[int]:
    return procedure(term, kind, TRANSIT.encode(Transit(region.id, "t")))


def moves(term: RegionsTerm, region: Region, to: str = "") -> Awaitable[int]:
    return procedure(term, move.NAME, MOVE.encode(Move(region.id, "t", to)))


async def polls(server: Server) -> None:
    """Polls for ever, takes operations, and does none."""
    while True:
        await server.poll()


async def creating(term: RegionsTerm, regions: int) -> int:
    """Begins the creation of a table; returns its pid once the table is there."""
    pid = await creates(term, regions=regions)
    await until(lambda: "t" in term.env.model.tables)
    return pid


async def known(pid: int) -> int:
    return pid


async def at_rest(term: RegionsTerm) -> None:
    """Waits until no procedure goes on; then nothing is locked, attached or in transition."""
    await until(lambda: not list(term.engine.live()) and not term.env.left)
    assert (term.engine.locks(), term.env.model.transit) == ([], {})
    assert not [one for one in term.env.model.servers.values() if one.expected]


@asynccontextmanager
async def one_region(disk: RegionDisk) -> AsyncIterator[tuple[RegionsTerm, Server, Region]]:
    """Runs a term with a region that server a has opened; the test sends what a says from now on."""
    async with running(disk, replace(OPTIONS, lease_ms=100_000)) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term))
        yield term, server, regions_of(term)[0]
