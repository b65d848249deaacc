"""A term of the regions' domain on a SQLite file, and servers in this process, which answer or are silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from configs.settings import Settings
from controller.journal.term_journal import TermJournal
from controller.process.clock import wall_ms
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import RegionsDomain
from controller.regions.environment import Options
from controller.regions.operator.view import View
from controller.regions.procedures.messages import MOVE, TABLE_TASK, TRANSIT, Move, TableTask, Transit
from controller.regions.term import RegionsTerm
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.port import NOTHING_SEEN, Above, StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from regent_agent import protocol
from state_machines.procedures.record import Caller, Record
from state_machines.regions.entities import Region

OPERATOR = Caller("User:ops")
WAIT_S = 60.0


class Member:
    """A process of a server. ``fails``: outcomes of its next opens. ``answers``: it reports what it has done."""

    def __init__(self, term: RegionsTerm, name: str, incarnation: int, features: Sequence[str] = ()) -> None:
        self.name = name
        self.incarnation = incarnation
        self.features = list(features)
        self.epoch = 0
        self.fails: list[str] = []
        self.answers = True
        self._term = term
        self._tasks: set[asyncio.Task[object]] = set()

    def __str__(self) -> str:
        return f"{self.name},{self.incarnation}"

    async def join(self) -> Member:
        """Registers, and polls from now on."""
        message = protocol.Register(self.name, self.incarnation, f"{self.name}:7000", "1.0", features=self.features)
        found = await self._handle(message)
        assert isinstance(found, protocol.Registered), found
        self.epoch = found.epoch
        self._run(self._poll(found.epoch))
        return self

    async def independent(self, *regions: Region) -> None:
        """Says that regions have data of their own."""
        owned = [protocol.Owned(one.id, one.token) for one in regions]
        await self._handle(protocol.Independent(self.name, self.incarnation, self.epoch, owned))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        self._tasks.add(asyncio.ensure_future(work))

    def kill(self) -> None:
        """Ends it without a word."""
        for task in self._tasks:
            task.cancel()

    async def _poll(self, epoch: int) -> None:
        taken = 0
        while True:
            found = await self._handle(protocol.Poll(self.name, self.incarnation, epoch, taken))
            if not isinstance(found, protocol.Operations):
                return
            taken = found.number
            if found.operations and self.answers:
                results = [self._done(one) for one in found.operations]
                self._run(self._report(protocol.Report(self.name, self.incarnation, epoch, results, taken)))

    async def _report(self, report: protocol.Report) -> None:
        while isinstance(found := await self._handle(report), protocol.Accepted) and found.again:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _done(self, operation: protocol.Operation) -> protocol.Result:
        if isinstance(operation, protocol.Open):
            if self.fails:
                return protocol.Result(operation.pid, self.fails.pop(), text="the disk is full")
            return protocol.Result(operation.pid, protocol.OPENED, operation.sequence + 10)
        if isinstance(operation, protocol.Close):
            return protocol.Result(operation.pid, protocol.CLOSED)
        return protocol.Result(operation.pid, protocol.DONE, parts=["p0"] if operation.what == "fence" else [])

    async def _handle(self, request: protocol.Request) -> protocol.Response:
        return await self._term.service.handle(request)


class Stage:
    """A term and its servers."""

    def __init__(self, term: RegionsTerm) -> None:
        self.term = term
        self.members: list[Member] = []

    async def join(self, name: str, incarnation: int = 1, features: Sequence[str] = ()) -> Member:
        member = await Member(self.term, name, incarnation, features).join()
        self.members.append(member)
        return member

    async def run(self, kind: str, data: bytes) -> Record:
        """Submits a procedure, and waits for its end."""
        pid = await self.term.engine.submit(kind, data, OPERATOR)
        return await asyncio.wait_for(self.term.engine.result(pid), WAIT_S)

    def submit_table(self, table: str, regions: int) -> None:
        """Begins to create a table, and does not wait for its end."""
        self.term.engine.submit_soon("create_table", TABLE_TASK.encode(TableTask(table, uniform=regions)), OPERATOR)

    async def create(self, table: str, regions: int) -> Record:
        return await self.run("create_table", TABLE_TASK.encode(TableTask(table, uniform=regions)))

    async def move(self, table: str, region: int, to: str) -> Record:
        return await self.run("move", MOVE.encode(Move(region, table, to, "a test")))

    async def close(self, table: str, region: int) -> Record:
        return await self.run("close", TRANSIT.encode(Transit(region, table, "a test")))

    async def assign(self, table: str, region: int) -> Record:
        return await self.run("assign", TRANSIT.encode(Transit(region, table, "a test")))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110  # it may be about lines and rows, which wake nobody
                await asyncio.sleep(0.01)


class Log:
    """Lines of a term."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "regent")
        self._caplog = caplog

    def grep(self, text: str) -> list[str]:
        """Returns the lines with a word, without what the procedure is about."""
        found = [line.getMessage() for line in self._caplog.records if text in line.getMessage().split()]
        return [line.partition("; table=")[0].partition("; server=")[0] for line in found]

    def whole(self, text: str) -> list[str]:
        return [line.getMessage() for line in self._caplog.records if text in line.getMessage()]

    def workers(self) -> set[object]:
        return {getattr(line, "worker", None) for line in self._caplog.records if "pid=" in line.getMessage()}


@asynccontextmanager
async def stage(
    folder: Path,
    journal: Callable[[int], TermJournal] | None = None,
    options: Options | None = None,
    above: Above = NOTHING_SEEN,
) -> AsyncIterator[Stage]:
    """Runs a term until the end of the block; a later one on the same folder goes on with its regions."""
    catalog = SqliteCatalog()
    store = await SqliteRecords.open(folder / "regions.db", catalog)
    term = RegionsTerm(
        store,
        catalog.of(store),
        store.epoch,
        options or Options(lease_ms=1_000, startup_wait_ms=0),
        wall_ms=wall_ms,
        limits=DispatchLimits(delay_ms=5),
        seed=1,
        journal=journal(store.epoch) if journal is not None else None,
        above=above,
    )
    await term.load()
    running = asyncio.ensure_future(term.run())
    found = Stage(term)
    try:
        yield found
    finally:
        for member in found.members:
            member.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        term.close(StoreFailed("the test is over"))
        await store.close()


def view_of(domain: object, settings: Settings | None = None) -> View:
    """Returns what operators see and change of a domain, or of what stands for one with a term."""
    return View(cast("RegionsDomain", domain), cast("Settings", settings))
