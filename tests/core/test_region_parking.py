"""A procedure of regions that ends term after term: the domain parks it, shows it everywhere, and serves the rest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from controller.http.ports import NotActive
from controller.http.region_ports import ProcedureQuery
from controller.http.region_requests import Change, TableCreation
from controller.metrics.exposition import registry
from controller.metrics.region_metrics import RegionsCollector
from controller.procedures.parking import TERMS_MAX
from controller.procedures.stepping import Stepping
from controller.regions import domain, loading
from controller.regions.kinds import many
from controller.regions.kinds.messages import CRASH, Crash
from controller.regions.unheard import Unheard
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.model import Regions, Server
from state_machines.regions.states import ServerState
from tests.core.regions_world import World, regions_world, settings_of
from tests.polling import eventually


def faulty() -> Any:
    """Patches the engine so that the step of one kind ends the term, as a fault of kernel, codec or model does."""
    changed = Stepping._changed

    def broken(self: Any, record: Record, act: Any, outcome: Any) -> Any:
        if record.kind == many.CLOSE_MANY:
            raise KeyError(99)
        return changed(self, record, act, outcome)

    return mock.patch.object(Stepping, "_changed", broken)


async def create(world: World, name: str) -> int:
    begun = await world.view.changes.create_table(TableCreation(name=name, uniform=4), "User:ops")
    return (await world.view.procedures.one(begun.pid, 10)).pid


def parked(world: World) -> list[int]:
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
            await world.view.changes.change_table("disable", "t", Change(reason="old"), "User:ops")
            await eventually(lambda: bool(world.domain.parking.parked))
            await eventually(lambda: world.domain.counters.terms == terms + TERMS_MAX)
            await eventually(lambda: world.domain.term is not None)
            await create(world, "u")
            [batch] = parked(world)
            item = await world.view.procedures.one(batch, 0)
            assert "3 terms in a row: KeyError: 99" in item.parked
            warnings = " ".join(world.view.reading.status().warnings)
            assert f"1 procedure parked, because steps ended terms (pid {batch})" in warnings
            assert "'regent regions procedures bypass PID' ends one" in warnings
            metrics = registry(RegionsCollector(world.domain.counters, world.view))
            assert metrics.get_sample_value("regent_region_procedures_parked") == 1
            ended = await world.view.procedures.end("bypass", batch, "User:ops", "it ends terms")
            assert ended.bypassed
            await eventually(lambda: not world.domain.parking.parked or not _live(world, batch))
        assert world.domain.counters.terms == terms + TERMS_MAX


def _live(world: World, pid: int) -> bool:
    record = world.domain.term.engine.records.get(pid) if world.domain.term else None
    return record is not None and not record.state.is_final


async def test_a_bypass_between_two_terms_is_carried_out_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with regions_world(settings_of(tmp_path)) as world:
        await create(world, "t")
        monkeypatch.setattr(domain, "AGAIN_S", 0.5)
        with faulty():
            begun = await world.view.changes.change_table("disable", "t", Change(), "User:ops")
            await eventually(lambda: world.domain.failed)
            [suspect] = world.domain.parking.suspects
            with pytest.raises(NotActive):
                world.view.procedures.list_procedures(ProcedureQuery(100))
            ended = await world.view.procedures.end("bypass", suspect, "User:ops", "it ends terms")
            assert (ended.bypassed, ended.end_reason) == (True, "it ends terms")
            record = await world.view.procedures.one(begun.pid, 10)
            assert record.bypassed
        assert not world.domain.parking.parked


async def test_a_record_that_the_model_does_not_take_over_is_parked_alone() -> None:
    """A term loads all records before it serves: one of them must not end it."""
    server = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {})
    model = Regions()
    model.servers[server.key] = server
    env: Any = SimpleNamespace(model=model, crashing=set(), left_out={}, unheard=Unheard())
    records = [
        Record(pid, "crash", State.RUNNABLE, 0, 1, 1, data=data)
        for pid, data in ((7, b"\xc1"), (8, CRASH.encode(Crash("s1", 1))))
    ]
    refused: dict[int, Exception] = {}
    loading.resume(env, records, refused.__setitem__)
    assert list(refused) == [7]
    assert (server.state, env.crashing) == (ServerState.CRASHED, {server.key})
