"""A procedure of regions that ends term after term: the domain parks it, shows it everywhere, and serves the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from controller.http.documents import NotActive, ViewRefused
from controller.metrics import registry
from controller.procedures.parking import TERMS_MAX, TOGETHER
from controller.procedures.stepping import Stepping
from controller.regions import domain, loading
from controller.regions.domain import RegionsMode
from controller.regions.metrics import RegionsCollector
from controller.regions.operator.procedures import ProcedureQuery
from controller.regions.operator.requests import Change
from controller.regions.operator.tables import TableCreation
from controller.regions.procedures import many
from controller.regions.procedures.messages import CRASH, Crash
from controller.regions.server_lists import Claimants
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.claims import FileClaim
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import RegionsWorld, regions_world, settings_of


def faulty() -> Any:
    """Patches the engine so that the step of one kind ends the term, as a fault of kernel, codec or model does."""
    changed = Stepping._changed

    def broken(self: Any, record: Record, act: Any, outcome: Any) -> Any:
        if record.kind == many.CLOSE_MANY:
            raise KeyError(99)
        return changed(self, record, act, outcome)

    return mock.patch.object(Stepping, "_changed", broken)


async def create(world: RegionsWorld, name: str) -> int:
    begun = await world.view.tables.create_table(TableCreation(name=name, uniform=4), "User:ops")
    return (await world.view.procedures.one(begun.pid, 10)).pid


def parked(world: RegionsWorld) -> list[int]:
    page = world.view.procedures.list_procedures(ProcedureQuery(100, parts=True, live=True))
    return [one.pid for one in page.items if one.parked]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "AGAIN_S", 0.02)


async def test_it_is_parked_shown_and_ended_while_other_tables_go_on(tmp_path: Path) -> None:
    async with regions_world(settings_of(tmp_path)) as world:
        await create(world, "t")
        terms = world.domain.counters.terms
        with faulty():
            await world.view.tables.change_table("disable", "t", Change(reason="old"), "User:ops")
            await eventually(lambda: bool(world.domain.parking.parked))
            await eventually(lambda: world.domain.counters.terms == terms + TERMS_MAX)
            await eventually(lambda: world.domain.term is not None)
            await create(world, "u")
            [batch] = parked(world)
            item = await world.view.procedures.one(batch, 0)
            assert "3 terms in a row: KeyError: 99" in item.parked
            warnings = " ".join(world.view.status.status().warnings)
            assert f"1 procedure parked, because steps ended terms (pid {batch})" in warnings
            assert "'regent regions procedures bypass PID' ends one" in warnings
            metrics = registry(RegionsCollector(world.domain.counters, world.view.region_gauges))
            assert metrics.get_sample_value("regent_region_procedures_parked") == 1
            ended = await world.view.procedures.end("bypass", batch, "User:ops", "it ends terms")
            assert ended.bypassed
            await eventually(lambda: not world.domain.parking.parked or not _live(world, batch))
        assert world.domain.counters.terms == terms + TERMS_MAX


def _live(world: RegionsWorld, pid: int) -> bool:
    record = world.domain.term.engine.records.get(pid) if world.domain.term else None
    return record is not None and not record.state.is_final


async def test_a_bypass_between_two_terms_is_carried_out_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with regions_world(settings_of(tmp_path)) as world:
        await create(world, "t")
        monkeypatch.setattr(domain, "AGAIN_S", 0.5)
        with faulty():
            begun = await world.view.tables.change_table("disable", "t", Change(), "User:ops")
            await eventually(lambda: world.domain.failed)
            [suspect] = world.domain.parking.suspects
            with pytest.raises(NotActive):
                world.view.procedures.list_procedures(ProcedureQuery(100))
            ended = await world.view.procedures.end("bypass", suspect, "User:ops", "it ends terms")
            assert (ended.bypassed, ended.end_reason) == (True, "it ends terms")
            record = await world.view.procedures.one(begun.pid, 10)
            assert record.bypassed
        assert not world.domain.parking.parked


async def test_a_bypass_waits_for_the_term_after_one_whose_load_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "AGAIN_S", 0.2)
    entered = loading.lost
    failures = [StoreFailed("the disk is full"), KeyError(1)]

    async def fails(model: Regions) -> Any:
        if failures:
            raise failures.pop()
        return await entered(model)

    async with regions_world(settings_of(tmp_path)) as world:
        await create(world, "t")
        with faulty():
            await world.view.tables.change_table("disable", "t", Change(), "User:ops")
            await eventually(lambda: world.domain.failed)
            monkeypatch.setattr(loading, "lost", fails)
            [suspect] = world.domain.parking.suspects
            ended = await asyncio.wait_for(world.view.procedures.end("bypass", suspect, "User:ops", "it ends"), 60)
            assert (ended.bypassed, failures) == (True, [])


async def test_a_large_family_is_removed_whole_between_two_terms(tmp_path: Path) -> None:
    count = 3 * TOGETHER + 5
    settings = settings_of(tmp_path)
    root = Record(1_000, "gone", State.WAITING, 1, 1, 1, done=(0,), born=tuple(range(1_001, 1_001 + count)))
    parts = [Record(pid, "gone", State.RUNNABLE, 0, 1, 1, parent=1_000, ancestors=(1_000,)) for pid in root.born]
    store = await SqliteRecords.open(settings.regions_file, SqliteCatalog())
    await store.load()
    await store.write([root, *parts])
    await store.close()
    async with regions_world(settings, servers=0) as world:
        assert world.domain.term is not None
        assert len(world.domain.term.engine.unusable) == count + 1
        world.domain.term.manager.end(StoreFailed("the disk is full"))
        await eventually(lambda: world.domain.failed)
        gone = await world.view.procedures.end("remove", 1_000, "User:ops", "of no use")
        assert (gone.state, gone.end_reason) == ("removed", "of no use")
        assert gone.detail.startswith("removed with pid 1001, ")
        assert gone.detail.endswith(" of its family")
        assert world.view.procedures.list_procedures(ProcedureQuery(1_000, parts=True)).items == []


async def test_a_standby_that_failed_before_answers_at_once_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another daemon got the store while this one paused: no term of this one comes."""
    monkeypatch.setattr(domain, "AGAIN_S", 0.2)
    async with regions_world(settings_of(tmp_path), servers=0) as world:
        assert world.domain.term is not None
        world.domain.term.manager.end(StoreFailed("the disk is full"))
        await eventually(lambda: world.domain.failed)
        waiting = asyncio.ensure_future(world.view.procedures.end("bypass", 7, "User:ops", ""))
        await asyncio.sleep(0)
        await eventually(lambda: world.domain.term is None)
        claim = FileClaim(world.settings.regions_file)
        try:
            await eventually(lambda: world.domain.mode is RegionsMode.STANDBY)
            with pytest.raises(ViewRefused, match=r"is standby .* has the store"):
                await asyncio.wait_for(waiting, 60)
            with pytest.raises(NotActive, match=r"is standby: .* has the store"):
                await asyncio.wait_for(world.view.procedures.end("bypass", 7, "User:ops", ""), 60)
        finally:
            claim.release()


async def test_a_record_that_the_model_does_not_take_over_is_parked_alone() -> None:
    """A term loads all records before it serves: one of them must not end it."""
    server = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {})
    model = Regions()
    model.servers[server.key] = server
    env: Any = SimpleNamespace(model=model, crashing=set(), left_out={}, claimants=Claimants())
    records = [
        Record(pid, "crash", State.RUNNABLE, 0, 1, 1, data=data)
        for pid, data in ((7, b"\xc1"), (8, CRASH.encode(Crash("s1", 1))))
    ]
    refused: dict[int, Exception] = {}
    await loading.resume(env, records, refused.__setitem__)
    assert list(refused) == [7]
    assert (server.state, env.crashing) == (ServerState.CRASHED, {server.key})
