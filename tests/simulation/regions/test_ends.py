"""Procedures that an operator has ended as they are: shown as that, and no region stays attached to one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from cli.commands.procedures import end_code
from cli.exit_codes import Exit
from controller.http.procedures import Procedure
from controller.regions.operator.records import BY_NAME, procedure_item, unmet_of
from controller.regions.procedures import many, servers, tables
from controller.regions.procedures.messages import CRASH, Crash
from metadata_store.records.codec import sealed
from regent_agent.protocol import Close, Operation
from state_machines.procedures.outcome import Done
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    at_rest,
    changes,
    creates,
    creating,
    done,
    known,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.kit.regions.world import (
    ended as ended_in_batches,
)
from tests.simulation.regions.cases import Case
from tests.simulation.regions.test_named_ways import in_situation
from tests.simulation.regions.ways_out import ended_by_operator

PARTS = frozenset({"assign_many", "close_many", "close_stray", "fence_log", "split_log"})
"""Kinds that operators never start; they leave no record."""


async def ended(case: Case, pid: int) -> Procedure:
    return procedure_item(await case.term.engine.result(pid))


def code_of(found: Procedure) -> Exit:
    return end_code(found.model_dump(by_alias=True))


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("a drain whose close hangs", "the server may have regions still"),
        ("a disable whose close hangs", "'regent tables list'"),
        ("a creation whose opens hang", "'regent regions list --stranded'"),
        ("a close that hangs", "'regent regions list --stranded'"),
        ("a move whose close hangs", "'regent regions list --stranded'"),
        ("a crash whose log cannot be split", "it begins anew"),
    ],
)
def test_a_procedure_that_was_ended_as_it_is_is_no_success(name: str, left: str) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        if "crash" in name:
            [case.pid] = [one.pid for one in case.live("crash")]
        await bypassed(case)
        found = await ended(case, case.pid)
        assert found.state == "bypassed"
        assert found.unmet.startswith("it was ended as it is by uid 7, before it was done; ")
        assert left in found.unmet
        assert code_of(found) is Exit.FAILED

    story()


async def bypassed(case: Case) -> None:
    """Ends a procedure by the parts of it that have no parts."""
    await ended_by_operator(case, case.pid)
    await case.reaches(lambda: case.term.engine.records[case.pid].state.is_final)


@in_situation("a move whose close hangs")
async def test_a_disable_that_waited_for_a_lock_as_it_was_ended_is_no_success(case: Case) -> None:
    await case.runs("tables disable t")
    await bypassed(case)
    found = await ended(case, case.pid)
    assert (found.state, code_of(found)) == ("bypassed", Exit.FAILED)
    assert case.term.env.model.tables["t"].state.name == "ENABLED"


@in_situation("a crash whose fence command fails")
async def test_a_drain_whose_server_crashes_with_regions_is_not_met(case: Case) -> None:
    record = Record(7, servers.DRAIN, State.RUNNABLE, 0, 1, 1, data=CRASH.encode(Crash("a", 1)))
    outcome = await servers.drain(case.term.env, record)
    assert isinstance(outcome, Done)
    found = procedure_item(replace(record, state=State.SUCCESS, result=outcome.result))
    assert found.unmet == "the server crashed before it was drained: its crash moves 1 of its regions"
    assert code_of(found) is Exit.REFUSED


@in_situation("an enabled table")
async def test_what_was_done_has_nothing_unmet(case: Case) -> None:
    region = case.region.id
    for command in (
        f"regions unassign {region}", f"regions assign {region}", "servers drain a", "servers uncordon a",
        "servers hold a", "servers release a", "tables disable t", "tables enable t", "tables disable t",
        "tables delete t",
    ):  # fmt: skip
        found = await case.operator.does(command)
        assert isinstance(found, Procedure), command
        done = await ended(case, found.pid)
        assert (done.state, done.unmet, code_of(done)) == ("success", "", Exit.DONE), command


@pytest.mark.parametrize("kind", sorted(BY_NAME.keys() - PARTS))
def test_each_kind_that_was_ended_as_it_is_says_where_to_look_for_its_effect(kind: str) -> None:
    record = Record(7, kind, State.SUCCESS, 0, 1, 1, bypassed=True, ending=Ending("bypass", "User:ops", "", 1))
    assert unmet_of(record).startswith("it was ended as it is by User:ops, before it was done; ")


@pytest.mark.parametrize(
    ("kind", "result"),
    [("close", b"pid 9 has the region"), ("assign", b"pid 9 has the region"), (tables.CREATE, b"2")],
)
def test_an_end_without_the_effect_is_unmet(kind: str, result: bytes) -> None:
    assert unmet_of(Record(7, kind, State.SUCCESS, 0, 1, 1, result=result))


REGIONS = 6
LONG = replace(OPTIONS, lease_ms=100_000)


class Narrow(MemoryRegionStore):
    """A store whose writes take a few records, as that of some seeds."""

    bytes_max = 1_300

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        return sum(len(sealed(one)) for one in puts)


@pytest.mark.parametrize("begins", ["crash", "creation"])
def test_a_batch_lets_go_its_last_regions_where_their_table_is_to_be_closed_before_they_have_a_child(
    begins: str,
) -> None:
    """No server is there, so the first children wait; the disable ends them, and the others are never born."""

    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk, store=Narrow) as term:
            if begins == "crash":
                async with serving(Server(term, "a")):
                    await ended_in_batches(term, creates(term, regions=REGIONS))
            else:
                await creating(term, REGIONS)
            batch = await until(
                lambda: [one for one in term.engine.live() if one.kind == many.ASSIGN_MANY and one.step == 0]
            )
            pid = batch[0].pid
            waiting = await until(lambda: [one for one in term.engine.live() if one.parent == pid])
            assert 0 < len(waiting) < REGIONS, "the batch goes in parts"
            assert [one for one in regions_of(term) if one.pid == pid], "it has the regions of the next part already"
            disabling = await changes(term, "disable")
            await until(lambda: term.engine.records[disabling].state.is_final)
            await at_rest(term)
            assert term.env.model.tables["t"].state is TableState.DISABLED
            assert {(one.pid, one.server) for one in regions_of(term)} == {(0, None)}
            async with serving(Server(term, "b")):
                await ended_in_batches(term, changes(term, "enable"))
                assert {(one.state, str(one.server)) for one in regions_of(term)} == {(RegionState.OPEN, "b,1")}

    story()


def test_a_batch_has_regions_closed_first_that_a_server_may_have_by_opens_that_were_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk(), LONG) as term:
            await (server := Server(term, "a")).register()
            await creating(term, 2)
            opens = await operations(server, 2)
            monkeypatch.setattr("controller.regions.term.picked_up", lambda *_: None)
            for one in opens:
                assert await term.engine.bypass(one.pid)
            await until(lambda: not list(term.engine.live()))
            assert {(one.state, one.pid, str(one.server)) for one in regions_of(term)} == {
                (RegionState.OPENING, 0, "a,1")
            }
            term.env.model.marks.put(Mark(MarkKind.CORDON, "a"))
            async with serving(other := Server(term, "b")):
                enabling = await changes(term, "enable")
                closes = await operations(server, 2)
                assert all(isinstance(one, Close) for one in closes)
                await asyncio.sleep(5)
                assert other.has == {}, "the first server has them until it says that it has closed them"
                await server.report(*map(done, closes))
                await ended_in_batches(term, known(enabling))
                assert other.has == {one.id: one.token for one in regions_of(term)}
                assert min(other.has.values()) > max(one.pid for one in opens)

    story()


async def operations(server: Server, count: int) -> list[Operation]:
    """Polls until there are so many operations."""
    found: list[Operation] = []
    while len(found) < count:
        found += await server.poll()
    assert len(found) == count
    return found
