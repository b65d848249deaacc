"""Runs terms of the regions' domain by hand, and kills each at a write of its store; servers live on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple, TypeVar
from unittest import mock

from controller.procedures import turns
from controller.regions.admission import ServerDead
from controller.regions.dispatcher import DispatchLimits
from controller.regions.environment import Options
from controller.regions.procedures import discard
from controller.regions.term import RegionsTerm
from controller.regions.transport.noded import Noded
from controller.regions.transport.nodes import Nodes
from metadata_store.catalog.rows import Catalog, Content, HeirRow, SnapshotPartRow
from metadata_store.port import Kill
from metadata_store.records.port import RecordStore, StoreFailed
from regent_agent import protocol
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from tests.kills.harness import Clock, Deaths, KillingStore
from tests.kills.region_servers import QuickServer, Service
from tests.kills.region_znodes import KilledZnodes

IDLE_MS: Final = 500
"""Time that passes where nothing is to be done."""
TURNS_MAX: Final = 400
LEASE_MS: Final = 4_000

R = TypeVar("R")


class Opened(NamedTuple):
    """An open store of the domain."""

    store: RecordStore
    catalog: Catalog
    epoch: int
    nodes: Nodes | None = None


Domains = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens the same store each time, as a daemon does that starts."""


def _content(puts: tuple[Record, ...], deletes: tuple[int, ...], rows: tuple[object, ...]) -> Hashable:
    """Returns what a write is about, without pids, tokens and times: these differ when it is tried again."""
    records = sorted((put.kind, put.state, put.step) for put in puts)
    return tuple(records), len(deletes), tuple(sorted(type(one).__name__ for one in rows))


class Life:
    """One life of a daemon, which a run drives by hand."""

    def __init__(self, opened: Opened, deaths: Deaths, service: Service, clock: Clock, options: Options) -> None:
        self.term = RegionsTerm(
            KillingStore(opened.store, deaths, _content),
            opened.catalog,
            opened.epoch,
            options,
            wall_ms=clock.now_ms,
            limits=DispatchLimits(delay_ms=0),
            seed=1,
            nodes=opened.nodes,
        )
        self.term.env.clock = lambda: clock.ms / 1000
        dispatcher = self.term.env.dispatcher
        self._znodes = None
        if opened.nodes is not None and isinstance(dispatcher, Noded):
            self._znodes = KilledZnodes(opened.nodes, dispatcher, deaths, self.term.env.clock)
        self.service = service
        self._clock = clock
        self._here: set[tuple[str, int]] = set()
        self._reports: dict[QuickServer, asyncio.Task[protocol.Response]] = {}
        self._turns = 0

    async def until(self, done: Callable[[], bool]) -> None:
        """Lets servers and the daemon act in turn until ``done``; time passes where nothing is wanted."""
        while not done():
            for server in self.service.alive:
                await self._serve(server)
            await asyncio.sleep(0)
            if not self.term._wanted.is_set():
                self._clock.ms += IDLE_MS
            self.term._wanted.clear()
            self.term.engine.wake_all(self.term.env.waking.take())
            self.term.manager.check_leases()
            self.term._pick_up()
            self.term.manager.discards.begin()
            if self._znodes is not None:
                await self._znodes.turn()
            with mock.patch.object(turns, "TURN_S_MAX", 60):  # a turn has the same steps on a slow machine
                await self.term.engine.turn()
            self._turns += 1
            assert self._turns < TURNS_MAX, f"it does not end: {list(self.term.engine.records.values())}"[:2_000]

    async def turns(self, count: int) -> None:
        """Lets some turns pass."""
        last = self._turns + count
        await self.until(lambda: self._turns >= last)

    async def run(
        self,
        kind: str,
        data: bytes,
        aborts: Callable[[Record], bool] | None = None,
        caller: Caller | None = None,
    ) -> Record:
        """Submits what an operator wants, with the same nonce each time, and waits for its end.

        ``aborts``: returns whether it is aborted by now.
        """
        procedures, caller = self.term.engine, caller or Caller("User:ops", nonce=f"{kind} {data!r}")
        pid = await self._driven(procedures.submit(kind, data, caller))
        if aborts is not None:
            await self.until(lambda: aborts(procedures.records[pid]))
            await self._driven(procedures.abort(pid))
        return await self._driven(procedures.result(pid))

    async def _driven(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs turns until ``work``, which waits for the engine, has ended."""
        task = asyncio.ensure_future(work)
        try:
            await self.until(task.done)
            return task.result()
        finally:
            task.cancel()

    async def calm(self) -> None:
        """Waits until no procedure is under way, and no server has anything to say."""
        await self.until(self._is_calm)

    def _is_calm(self) -> bool:
        procedures = self.term.engine
        here = all(one.key in self._here and not one.results for one in self.service.alive)
        known = {key for key, one in self.service.servers.items() if one.alive} >= self.term.env.model.servers.keys()
        reports = any(not one.done() for one in self._reports.values())
        works = list(procedures.live()) or discard.due(self.term.env.model)
        rests = not (works or len(procedures._intake) or self.term.env.left)
        return here and known and rests and not reports and (self._znodes is None or self._znodes.rest)

    async def _serve(self, server: QuickServer) -> None:
        """Registers a server, or has it poll and report."""
        service, manager = self.term.service, self.term.manager
        if server.key not in self._here:
            response = await service.handle(server.register())
            if isinstance(response, protocol.Registered):
                server.registered(response)
                self._here.add(server.key)
            elif isinstance(response, protocol.Refused) and response.code == protocol.DEAD:
                server.dies()
            return
        try:
            found = manager.server(*server.key, server.epoch)
        except ServerDead:
            server.dies()
            return
        await server.take(await manager.poll(found, server.taken, 0))
        if server.lists:
            server.lists = False
            await service.handle(protocol.Regions(*server.key, server.epoch, server.register().owned))
        await self._report(server)

    async def _report(self, server: QuickServer) -> None:
        report = self._reports.get(server)
        if report is not None and report.done():
            del self._reports[server]
        elif report is None and server.results:
            sent = list(server.results.values())
            self._reports[server] = asyncio.ensure_future(self._reported(server, sent))
            await asyncio.sleep(0)

    async def _reported(self, server: QuickServer, sent: list[protocol.Result]) -> protocol.Response:
        response = await self.term.service.handle(protocol.Report(*server.key, server.epoch, sent, server.taken))
        if isinstance(response, protocol.Accepted):
            server.accepted(sent, response.again)
        return response

    def end(self) -> None:
        """Ends what the daemon's death leaves running in this process."""
        for task in self._reports.values():
            task.cancel()
        if self._znodes is not None:
            self._znodes.end()
        self.term.env.bus.close()
        for run in self.term.env.fencing._runs.values():
            run.cancel()
        self.term.close(StoreFailed("it is over"))


Story = Callable[[Life], Awaitable[Record | None]]
"""What happens: it is repeated where the daemon dies, and returns the record of what an operator wanted."""


class End(NamedTuple):
    """What is left: the outcome, tables, regions without pids and names of servers, and the servers."""

    outcome: tuple[State, bytes] | None
    tables: list[tuple[str, int]]
    regions: list[tuple[str, bytes, bytes, str, bool]]
    servers: list[tuple[str, int]]
    shapes: list[tuple[str, int]]
    """Kinds of small rows, but parts of snapshots, and how many regions each is about."""


async def play(
    domains: Domains,
    service: Service,
    clock: Clock,
    options: Options,
    story: Story,
    deaths: Deaths,
    *,
    pieces: bool = False,
) -> End:
    """Plays a story to its end, with a new daemon after each death. ``pieces``: a step writes one region."""
    while True:
        async with domains() as opened:
            life = Life(opened, deaths, service, clock, options)
            if pieces:
                life.term.env.rows_max = 1
            try:
                await life.term.load()
                assert not life.term.engine.unusable, life.term.engine.unusable
                record = await story(life)
                await life.calm()
            except Kill:
                continue
            finally:
                life.end()
            content = await opened.catalog.read()
            _agree(content, life, service)
            return _end(record, content)


def _end(record: Record | None, content: Content) -> End:
    regions = [
        (one.table, one.start, one.end, RegionState(one.state).name, bool(one.server)) for one in content.regions
    ]
    return End(
        None if record is None else (record.state, record.result),
        [(one.name, one.state) for one in content.tables],
        regions,
        [(one.name, one.incarnation) for one in content.servers],
        sorted(
            (type(one).__name__, len(one.sources) if isinstance(one, HeirRow) else 1)
            for one in content.small
            if not isinstance(one, SnapshotPartRow)
        ),
    )


def _agree(content: Content, life: Life, service: Service) -> None:
    """Checks that catalog, memory and servers agree."""
    assert not service.faults, service.faults
    assert not content.damaged, content.damaged
    stored = {one.id: ((one.server, one.incarnation), one.token) for one in content.regions if one.server}
    held = {region: (one.key, one.owned[region]) for region, one in service.owners.items()}
    assert stored == held, f"the catalog has {stored}, servers have {held}"
    model = life.term.env.model
    for row in content.regions:
        region = model.regions[row.id]
        key = ("", 0) if region.server is None else region.server.key
        last = region.token, region.sequence, region.version, region.clean, model.former.get(row.id, ""), region.pid
        assert (int(region.state), *key, *last) == (*row[4:], 0), (row, region)
    assert model.regions.keys() == {one.id for one in content.regions}
    assert not model.transit, model.transit
    assert {one.name: one.state for one in content.tables} == {n: int(t.state) for n, t in model.tables.items()}
