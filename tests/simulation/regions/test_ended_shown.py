"""A procedure that an operator has ended as it is is shown as that, with what it left undone; scripts see it, too."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cli.commands.procedures import end_code
from cli.exit_codes import Exit
from controller.http.procedure_models import Procedure
from controller.regions.kinds import servers, tables
from controller.regions.kinds.messages import CRASH, Crash
from controller.regions.operator.items import BY_NAME, procedure_item
from controller.regions.operator.unmet import unmet_of
from state_machines.procedures.outcome import Done
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State
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
    [("close", b"pid 9 has the region"), ("assign", b"pid 9 has the region"), (tables.CREATE.name, b"2")],
)
def test_an_end_without_the_effect_is_unmet(kind: str, result: bytes) -> None:
    assert unmet_of(Record(7, kind, State.SUCCESS, 0, 1, 1, result=result))
