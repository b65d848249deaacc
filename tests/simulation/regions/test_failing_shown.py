"""A procedure that fails in each attempt, or that another one has superseded, is shown as such, with its way out."""

from __future__ import annotations

import asyncio

import pytest

from controller.http.procedures import Procedure
from controller.regions.operator.procedures import ProcedureQuery, ProcedureView
from controller.regions.operator.records import procedure_item
from state_machines.procedures.states import State
from tests.simulation.regions.cases import Case
from tests.simulation.regions.operating import Refusal
from tests.simulation.regions.test_named_ways import in_situation, reading


def procedures(case: Case) -> ProcedureView:
    return case.operator.procedures


def listed(case: Case, pid: int) -> Procedure:
    page = procedures(case).list_procedures(ProcedureQuery(100, 0, None, live=True, parts=False))
    [found] = [one for one in page.items if one.pid == pid]
    return found


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("a creation whose opens fail", ["'regent tables delete t'", "'regent tables disable t'"]),
        ("an enable whose opens fail", ["'regent tables disable t'"]),
        ("a reopening whose opens fail", ["'regent regions procedures bypass "]),
        ("a crash whose log cannot be split", ["'regent regions procedures leave-out "]),
        ("a crash whose fence command fails", ["regions.fence_command"]),
    ],
)
def test_a_procedure_that_fails_in_each_attempt_is_listed_with_its_attempts_cause_and_way(
    name: str, ways: list[str]
) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        await asyncio.sleep(120)
        found = listed(case, case.pid)
        assert found.attempts >= 5 or "split" in name
        assert found.error
        shown = await procedures(case).one(case.pid, 0)
        for way in ways:
            assert way in shown.ends_by

    story()


@pytest.mark.parametrize(
    "name", ["a creation whose opens hang", "a move whose close hangs", "a disable whose close hangs"]
)
def test_a_procedure_that_hangs_names_what_ends_it_once_that_takes_longer_than_a_lease(name: str) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        await asyncio.sleep(10)
        shown = await procedures(case).one(case.pid, 0)
        assert "'regent servers expire a'" in shown.ends_by
        if "creation" in name:
            assert shown.ends_by.index("servers expire a") < shown.ends_by.index("tables delete t")
            assert "once these have ended: 'regent tables delete t'" in shown.ends_by

    story()


@in_situation("a move whose close hangs")
async def test_a_disable_behind_a_close_that_hangs_names_what_ends_that(case: Case) -> None:
    await case.runs("tables disable t")
    await asyncio.sleep(10)
    shown = await procedures(case).one(case.pid, 0)
    assert "'regent servers expire a'" in shown.ends_by


@pytest.mark.parametrize("act", ["disable", "delete"])
@pytest.mark.parametrize("name", ["a creation whose opens hang", "a move whose close hangs"])
def test_a_change_of_a_table_that_waits_for_its_lock_names_the_holder_and_what_ends_that(name: str, act: str) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        holder, kind = case.pid, "create_table" if "creation" in name else "move"
        if act == "delete" and kind == "move":
            return
        await case.runs(f"tables {act} t")
        waits = f"it waits for the lock of procedure {holder} ({kind})"
        shown = await procedures(case).one(case.pid, 0)
        assert waits in shown.progress
        assert "'regent servers expire a'" in shown.ends_by
        assert waits in listed(case, case.pid).detail
        note = reading(case).tables.describe_table("t").note
        assert note.startswith(f"procedure {case.pid} ({act}_table): {waits}; ")
        assert "'regent servers expire a'" in note

    story()


@in_situation("a drain whose close hangs")
async def test_a_drain_that_is_being_undone_says_so_and_what_ends_it(case: Case) -> None:
    assert case.server is not None
    await case.operator.does(f"regions procedures abort {case.pid}")
    shown = await procedures(case).one(case.pid, 0)
    assert shown.progress.startswith("it is being undone: it begins nothing more, and ends after its parts ")
    assert "it is being undone" in listed(case, case.pid).detail
    assert "abort" not in shown.ends_by
    assert "'regent servers expire a'" in shown.ends_by
    assert not case.server.leaving
    await case.operator.does("servers expire a")
    record = await case.term.engine.result(case.pid)
    assert record.state is State.ROLLEDBACK


@in_situation("a drain whose close hangs")
async def test_the_next_daemon_gives_regions_to_a_server_whose_drain_is_being_undone(case: Case) -> None:
    await case.operator.does(f"regions procedures abort {case.pid}")
    await case.fail_over()
    await case.reaches(lambda: case.server is not None and case.server.here)
    assert case.live("drain_server")
    assert case.server is not None
    assert not case.server.leaving


@in_situation("an enabled table")
async def test_a_procedure_that_goes_its_way_names_no_way_to_end_it(case: Case) -> None:
    await case.runs(f"regions reopen {case.region.id}")
    assert not (await procedures(case).one(case.pid, 0)).ends_by


@pytest.mark.parametrize("act", ["disable", "delete"])
@pytest.mark.parametrize("name", ["a creation whose opens fail", "an enable whose opens fail"])
def test_what_a_later_change_of_its_table_has_ended_is_superseded_by_that(name: str, act: str) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        later = await case.operator.does(f"tables {act} t")
        if isinstance(later, Refusal):
            assert (name, act) == ("an enable whose opens fail", "delete")
            return
        record = await case.term.engine.result(case.pid)
        found = procedure_item(record)
        assert (record.state, found.state) == (State.SUCCESS, "superseded")
        assert found.unmet == f"superseded by procedure {later.pid} ({act}_table)"

    story()


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("a creation whose opens fail", ["tables delete t", "tables disable t"]),
        ("an enable whose opens fail", ["tables disable t"]),
    ],
)
def test_an_abort_that_is_refused_names_the_clean_way_before_the_bypass(name: str, ways: list[str]) -> None:
    @in_situation(name)
    async def story(case: Case) -> None:
        refused = await case.operator.does(f"regions procedures abort {case.pid}")
        assert isinstance(refused, Refusal)
        assert refused.commands[: len(ways)] == ways
        assert isinstance(await case.operator.does(ways[0]), Procedure)

    story()


@pytest.mark.parametrize("act", ["abort", "bypass", "remove"])
def test_what_ends_work_on_a_log_is_leave_out_and_not_an_end_that_begins_the_crash_anew(act: str) -> None:
    @in_situation("a crash whose log cannot be split")
    async def story(case: Case) -> None:
        await asyncio.sleep(3)
        refused = await case.operator.does(f"regions procedures {act} {case.pid}")
        assert isinstance(refused, Refusal)
        work = case.live("split_log")[0].pid
        assert refused.commands[0] == f"regions procedures leave-out {work}"
        assert "begins anew" in refused.text
        assert "bypass" not in refused.text
        assert isinstance(await case.operator.does(refused.commands[0]), Procedure)

    story()
