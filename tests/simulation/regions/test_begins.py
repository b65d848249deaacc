"""How terms begin: what is recovered, in which order; and what tables have done as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions import loading
from controller.regions.environment import RegionsEnv
from controller.regions.procedures.messages import MOVE, Move
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import Content, Owner, PutTable
from metadata_store.records.port import Stored
from regent_agent.protocol import Close, Open, Operation, Result
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    changes,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

S = RegionState


class Told(Server):
    """A server that remembers what it was told to do; ``noted``: of several servers, and of the store."""

    def __init__(self, term: RegionsTerm, name: str, noted: list[object]) -> None:
        super().__init__(term, name)
        self.noted = noted

    def do(self, operation: Operation) -> Result:
        self.noted.append(operation)
        return super().do(operation)


class Noting(MemoryRegionStore):
    """A store that notes what is read from it, and the rows that are written."""

    def __init__(self, noted: list[object], disk: RegionDisk) -> None:
        super().__init__(disk)
        self._noted = noted

    async def read(self) -> Content:
        self._noted.append("catalog")
        return await super().read()

    async def load(self) -> Stored:
        self._noted.append("records")
        return await super().load()

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        some = list(rows)
        await super().write(puts, deletes, some)
        self._noted += some


@pytest.mark.seed("S0-2", "S0-8")
@virtual
async def test_nothing_is_opened_before_as_many_servers_have_come_as_are_wanted_and_then_each_has_its_part() -> None:
    async with running(RegionDisk(), replace(OPTIONS, servers_min=2, startup_wait_ms=50_000)) as term:
        first, second = Server(term, "a"), Server(term, "b")
        async with serving(first):
            made = asyncio.ensure_future(ended(term, creates(term, regions=4)))
            await asyncio.sleep(20)
            assert (first.has, made.done()) == ({}, False)
            async with serving(second):
                await made
                assert len(first.has) == len(second.has) == 2


@pytest.mark.seed("S0-33", "S0-37", "S0-38", "S0-39", "S0-40", "S0-44", "S0-46", "S0-48")
@virtual
async def test_a_table_is_stored_as_disabling_before_its_regions_close_and_none_opens_until_it_is_enabled() -> None:
    noted: list[object] = []
    async with (
        running(RegionDisk(), store=partial(Noting, noted)) as term,
        serving(Told(term, "a", noted), Told(term, "b", noted)),
    ):
        await ended(term, creates(term, regions=4))
        ids = {one.id for one in regions_of(term)}
        noted.clear()
        await ended(term, changes(term, "disable"))
        closed = noted.copy()
        noted.clear()
        await asyncio.sleep(OPTIONS.lease_ms / 1000)
        assert not [one for one in noted if isinstance(one, Open | Owner)], "nothing assigns them later"
        await ended(term, changes(term, "enable"))
    assert [one.row.state for one in closed if isinstance(one, PutTable)] == [TableState.DISABLING, TableState.DISABLED]
    assert isinstance(closed[0], PutTable)
    assert sorted(one.region for one in closed if isinstance(one, Close)) == sorted(ids)
    assert {one.id: one.state for one in closed if isinstance(one, Owner)} == dict.fromkeys(ids, S.CLOSED)
    assert not [one for one in closed if isinstance(one, Open)]
    assert sorted(one.region for one in noted if isinstance(one, Open)) == sorted(ids)
    assert {one.id: one.state for one in noted if isinstance(one, Owner)} == dict.fromkeys(ids, S.OPEN)


@pytest.mark.seed("S1-37")
@virtual
async def test_a_term_has_catalog_records_locks_and_doubts_before_its_procedures_go_on() -> None:
    """What a record has sent is sent again; the change of the table waits behind it as before."""
    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=3))
        await server.register(*lists(regions_of(term)))
        moving = regions_of(term)[0]
        moved = await procedure(term, "move", MOVE.encode(Move(moving.id, "t", reopens=True)))
        begun = await server.operation()
        disabled = await changes(term, "disable")
        await until(lambda: term.engine.records[disabled])
        locks, had = term.engine.locks(), dict(term.engine.records)
    noted: list[object] = []
    resumed = loading.resume

    async def resumes(env: RegionsEnv, records: Iterable[Record], park: Callable[[int, Exception], None]) -> None:
        model = env.model
        noted.append(("model", set(model.tables), [one.state for one in model.regions.values()]))
        await resumed(env, records, park)
        noted.append(("attached", moving.id, model.regions[moving.id].pid))

    with mock.patch.object(loading, "resume", resumes):
        async with running(disk, store=partial(Noting, noted)) as term:
            assert noted[:4] == [
                "catalog",
                "records",
                ("model", {"t"}, [S.OPEN, S.OPEN, S.OPEN]),
                ("attached", moving.id, begun.pid),
            ]
            assert (term.engine.locks(), term.engine.records) == (locks, had), "locks and steps are those of before"
            assert all(one.doubtful for one in regions_of(term) if one.id != moving.id)
            server.term = term
            await server.register(*lists(regions_of(term)))
            assert await server.operation() == begun, "the table waits for the move"
            await server.report(server.do(begun))
            async with asyncio.timeout(60):
                await asyncio.gather(term.engine.result(moved), term.engine.result(disabled), serve(server))


async def serve(server: Server) -> None:
    """Serves until the server has nothing left."""
    while server.has:
        await server.report(*map(server.do, await server.poll()))
