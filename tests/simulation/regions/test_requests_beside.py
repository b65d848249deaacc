"""Requests about a table beside a change of it that waits for its lock: what is accepted ends as it was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.procedures.kinds import Kind, Step
from controller.regions.domain import RegionsDomain
from controller.regions.environment import RegionsEnv
from controller.regions.operator.region_changes import RegionChange
from controller.regions.operator.requests import Change
from controller.regions.operator.table_changes import Truncation
from controller.regions.operator.works import WorkRequest
from controller.regions.procedures import every, messages
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from regent_agent.protocol import FLUSH
from state_machines.procedures.outcome import Outcome, Wait
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import (
    Server,
    at_rest,
    changes,
    creates,
    ended,
    procedure,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.operating import Operator, Refusal, acts

ENABLED, DISABLED = TableState.ENABLED, TableState.DISABLED
TRUNCATE, EMPTY = "truncate", "truncate --no-enable"


READS = "read_table"
"""A kind that has a share of a table's lock until the test ends it: for so long no change of the table gets it."""


async def reads(env: RegionsEnv, record: Record) -> Outcome:
    return Wait(0, record.data, durable=False)


READ_TABLE: Kind[RegionsEnv] = Kind(
    READS,
    (Step("read", reads),),
    lambda record: messages.share_of_table(TABLE_TASK.decode(record.data).table),
    holds_locks=True,
    members=messages.of_table,
)


async def asked(term: RegionsTerm, command: str) -> Procedure:
    """Sends a request about table t, or its only region; raises Refused."""
    view = view_of(cast("RegionsDomain", SimpleNamespace(term=term)))
    match command:
        case "truncate" | "truncate --no-enable":
            return await view.table_changes.truncate("t", Truncation(enable=command == TRUNCATE), "uid 7")
        case "assign":
            [region] = term.env.model.tables["t"].regions
            return await view.region_changes.change_region("assign", region.id, RegionChange(), "uid 7")
        case "work":
            return await view.works.work_on_table("t", WorkRequest(work=FLUSH), "uid 7")
        case "work on a region":
            [region] = term.env.model.tables["t"].regions
            return await view.works.work_on_region(region.id, WorkRequest(work=FLUSH), "uid 7")
    return await view.tables.change_table(cast("Any", command), "t", Change(), "uid 7")


@asynccontextmanager
async def waiting(state: TableState, command: str) -> AsyncIterator[tuple[RegionsTerm, Server, int, Procedure]]:
    """Runs a term with a table in a state, what reads it, and a change that waits for the end of that."""
    with mock.patch.object(every, "KINDS", (*every.KINDS, READ_TABLE)):
        async with running(RegionDisk()) as term, serving(server := Server(term, "a")):
            await ended(term, creates(term))
            if state is DISABLED:
                await ended(term, changes(term, "disable"))
            reading = await procedure(term, READS, TABLE_TASK.encode(TableTask("t")))
            await until(term.engine.locks)
            first = await asked(term, command)
            yield term, server, reading, first


async def state_after(term: RegionsTerm, reading: int) -> TableState | None:
    """Lets all go on; returns the state of the table then, None where it is gone."""
    if not term.engine.records[reading].bypassed:
        await term.engine.bypass(reading)
    await at_rest(term)
    found = term.env.model.tables.get("t")
    return None if found is None else found.state


@pytest.mark.parametrize(
    ("state", "before", "command", "after"),
    [
        (ENABLED, "disable", "disable", DISABLED),
        (DISABLED, EMPTY, EMPTY, DISABLED),
        (DISABLED, EMPTY, "enable", ENABLED),
        (DISABLED, EMPTY, "delete", None),
        (DISABLED, TRUNCATE, "delete", None),
        (DISABLED, "enable", "delete", None),
    ],
)
def test_a_request_that_follows_from_what_waits_is_accepted_and_done(
    state: TableState, before: str, command: str, after: TableState | None
) -> None:
    @virtual
    async def story() -> None:
        async with waiting(state, before) as (term, _, reading, first):
            second = await asked(term, command)
            assert await state_after(term, reading) is after
            records = [await term.engine.result(one.pid) for one in (first, second)]
            assert [(one.state, one.error) for one in records] == [(State.SUCCESS, "")] * 2

    story()


@virtual
async def test_a_change_that_opens_what_is_deleted_next_names_the_deletion_in_its_result() -> None:
    async with waiting(DISABLED, TRUNCATE) as (term, server, reading, first):
        deletion = await asked(term, "delete")
        assert await state_after(term, reading) is None
        record = await term.engine.result(first.pid)
        assert record.result == b"superseded by procedure %d (delete_table)" % deletion.pid
        assert not server.has, "nothing was opened for it"


@pytest.mark.parametrize(
    ("state", "before", "command", "after"),
    [
        (DISABLED, "enable", "enable", ENABLED),
        (DISABLED, TRUNCATE, "enable", ENABLED),
        (DISABLED, "enable", "disable", DISABLED),
        (DISABLED, TRUNCATE, "disable", DISABLED),
        (ENABLED, "disable", "enable", ENABLED),
        (ENABLED, "disable", "delete", None),
        (ENABLED, "disable", TRUNCATE, ENABLED),
        (DISABLED, TRUNCATE, "assign", DISABLED),
        (DISABLED, "enable", "work", DISABLED),
        (DISABLED, "enable", "work on a region", DISABLED),
    ],
)
def test_a_refusal_beside_what_waits_names_a_command_that_is_accepted(
    state: TableState, before: str, command: str, after: TableState | None
) -> None:
    """Once that has ended the request is accepted, or has nothing to do."""

    @virtual
    async def story() -> None:
        async with waiting(state, before) as (term, _, reading, first):
            with pytest.raises(ViewRefused) as refused:
                await asked(term, command)
            [way] = [one for one in Refusal(refused.value.remedy).commands if acts(one)]
            found = await Operator(lambda: term).does(way)
            assert isinstance(found, Procedure), f"{refused.value.remedy}: {found.text}"
            await term.engine.bypass(reading)
            record = await term.engine.result(found.pid)
            assert record.state is (State.ROLLEDBACK if found.pid == first.pid else State.SUCCESS)
            if term.env.model.tables["t"].state is not after:
                await term.engine.result((await asked(term, command)).pid)
            assert await state_after(term, reading) is after

    story()
