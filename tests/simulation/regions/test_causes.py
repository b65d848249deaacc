"""The cause of the latest attempt is told to operators wherever one fails: explanations, lists, procedures, the log."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.regions import fencing, in_transition
from controller.regions.dispatcher import SAID_CHARS_MAX, said
from controller.regions.endings import KEPT_MAX, Causes
from controller.regions.fencing import NotFenced
from controller.regions.in_transition import oldest
from controller.regions.operator.explain import explained
from controller.regions.operator.progress import progress_of
from controller.regions.operator.records import detail_of
from controller.regions.operator.regions import transition_item
from controller.regions.procedures import close, many
from controller.regions.procedures.messages import CRASH, TRANSIT, Crash, Transit
from controller.regions.term import RegionsTerm
from regent_agent import protocol
from regent_agent.protocol import Close, Open, Operation, Result, Task
from regent_agent.service import LowToken
from state_machines.procedures.record import Record
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    virtual,
)
from tests.kit.regions.world import until as until_holds

RUNBOOK = Path(__file__).parents[3] / "docs" / "how-to" / "runbook-regions.md"
BROKEN = "a,1 said failed_open: OSError: no such volume"


class Broken(Server):
    """A server that fails whatever is of one type."""

    fails: type[Operation] = Open
    outcome = protocol.FAILED_OPEN
    text = "OSError: no such volume"

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, self.fails):
            return Result(operation.pid, self.outcome, text=self.text)
        return super().do(operation)


class NotClosing(Broken):
    fails, outcome, text = Close, protocol.FAILED, "it hangs"


class NotSplitting(Broken):
    """A server that fences a log, and splits no part of it."""

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Task) and operation.what == "split":
            return Result(operation.pid, protocol.FAILED, text="part is corrupt")
        if isinstance(operation, Task):
            return Result(operation.pid, protocol.DONE, parts=["p1", "p2"])
        return Server.do(self, operation)


def live(term: RegionsTerm, kind: str) -> list[Record]:
    return [one for one in term.engine.live() if one.kind == kind]


def told(term: RegionsTerm, kind: str) -> str:
    [record] = live(term, kind)
    return progress_of(record, term.env, term.engine)


def because(term: RegionsTerm) -> tuple[str, str, str]:
    found = explained(regions_of(term)[0], term.env, term.engine)
    return found.state_because, found.server_because, found.procedure_because


def retried(term: RegionsTerm) -> bool:
    return any("attempts failed" in detail_of(one) for one in live(term, "assign"))


@pytest.mark.parametrize("fails_over", [False, True])
def test_an_open_that_fails_again_and_again_tells_why_also_after_a_failover(fails_over: bool) -> None:
    @virtual
    async def story() -> None:
        disk = RegionDisk()
        async with running(disk) as term, serving(Broken(term, "a")):
            await creates(term, regions=2)
            await until_holds(lambda: len([one for one in live(term, "assign") if "5 attempts" in detail_of(one)]) == 2)
            if not fails_over:
                await _told_everywhere(term)
        if fails_over:
            async with running(disk) as term:
                await asyncio.sleep(0.5)
                await _told_everywhere(term)

    story()


async def _told_everywhere(term: RegionsTerm) -> None:
    region = regions_of(term)[0]
    assert f"; in the last attempt {BROKEN}" in because(term)[2]
    record = term.engine.records[region.pid]
    assert detail_of(record).endswith(f"5 attempts failed; {BROKEN}")
    assert progress_of(record, term.env, term.engine).endswith(f"; in the last attempt {BROKEN}")
    aged, _ = await oldest(term.env, term.engine.records, 100)
    assert {transition_item(one, term.env, overdue=True).cause for one in aged} == {BROKEN}
    for kind in ("create_table", many.ASSIGN_MANY):
        assert "attempts on 2 regions failed, the last one on t#" in told(term, kind)
        assert told(term, kind).endswith(f": {BROKEN}")


@virtual
async def test_an_open_that_failed_once_is_forgotten_with_its_success() -> None:
    async with running(RegionDisk()) as term:
        server = Server(term, "a")
        await server.register()
        await creates(term)
        opening = await server.operation()
        await server.report(Result(opening.pid, protocol.BUSY, text="its queue is full"))
        assert because(term)[2].endswith("; in the last attempt a,1 said busy: its queue is full")
        opening = await server.operation()
        await server.report(Result(opening.pid, protocol.OPENED, 1))
        await until_holds(lambda: not list(term.engine.live()))
        assert not list(term.env.causes.latest())
        assert "attempt" not in "".join(because(term))


@virtual
async def test_a_region_that_was_given_up_tells_why_and_another_term_where_that_is_found() -> None:
    disk = RegionDisk()
    async with running(disk, replace(OPTIONS, open_attempts_max=2)) as term, serving(Broken(term, "a")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        assert region.state is RegionState.FAILED_OPEN
        assert f"; in the last attempt {BROKEN}" in because(term)[0]
    async with running(disk) as term, serving(Server(term, "a", 2)):
        assert f"'regent events show --region {regions_of(term)[0].id}' has what they said" in because(term)[0]
        await ended(term, procedure(term, "assign", TRANSIT.encode(Transit(region.id, "t"))))
        assert "events show" not in because(term)[0]


class OldData(Broken):
    """A server with data of another store: its service raises as the agent's library says."""

    text = f"LowToken: {LowToken(812, 17)}"


@virtual
async def test_data_that_is_newer_than_the_store_is_explained_with_the_way_on() -> None:
    async with running(RegionDisk(), replace(OPTIONS, open_attempts_max=2)) as term, serving(OldData(term, "a")):
        await ended(term, creates(term))
        assert "the data has token 812, this open has 17" in because(term)[0]
        [section] = re.findall(r"'([^']+)' in the runbook of regions", because(term)[0])
        assert f"## {section}\n" in RUNBOOK.read_text(encoding="utf-8")


@virtual
async def test_a_close_that_fails_tells_why() -> None:
    async with running(RegionDisk()) as term, serving(NotClosing(term, "a")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        await procedure(term, close.NAME, TRANSIT.encode(Transit(region.id, "t")))
        await until_holds(lambda: "said" in because(term)[2])
        assert because(term)[2].endswith("; in the last attempt a,1 said failed: it hangs")
        assert told(term, close.NAME).endswith("; in the last attempt a,1 said failed: it hangs")


class NoVolumeForU(NotClosing):
    """A server that closes nothing, and opens no region of one table."""

    def do(self, operation: Operation) -> Result:
        if isinstance(operation, Open) and operation.table == "u":
            return Result(operation.pid, protocol.FAILED_OPEN, text="no such volume")
        return super().do(operation)


@virtual
async def test_a_drain_names_the_procedures_that_it_waits_for_and_no_failure_of_another_server() -> None:
    async with running(RegionDisk()) as term, serving(NoVolumeForU(term, "a"), NoVolumeForU(term, "b")):
        await ended(term, creates(term))
        region = regions_of(term)[0]
        assert region.server is not None
        closes = await procedure(term, close.NAME, TRANSIT.encode(Transit(region.id, "t")))
        await creates(term, "u")
        name, incarnation = region.server.key
        await procedure(term, "drain_server", CRASH.encode(Crash(name, incarnation)))
        await until_holds(lambda: "no such volume" in told(term, "create_table"))
        await until_holds(lambda: "it hangs" in told(term, "drain_server"))
        said_of_drain = told(term, "drain_server")
        assert f"; it waits for procedure {closes} (close)" in said_of_drain
        assert "no such volume" not in said_of_drain


@virtual
async def test_a_drain_names_the_failures_of_its_own_moves() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        async with serving(Broken(term, "b")):
            await procedure(term, "drain_server", CRASH.encode(Crash("a", 1)))
            await until_holds(lambda: "attempts on 1 region failed" in told(term, "drain_server"))
            assert told(term, "drain_server").endswith("b,1 said failed_open: OSError: no such volume")
            assert "it waits for" not in told(term, "drain_server")


@virtual
async def test_the_parts_of_a_log_that_cannot_be_split_are_named_by_the_crash_and_its_regions() -> None:
    async with running(RegionDisk(), replace(OPTIONS, fence="log")) as term, serving(NotSplitting(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
        region = regions_of(term)[0]
        assert str(region.server) == "a,1"
        await until_holds(lambda: "p2" in because(term)[1])
        for text in (because(term)[1], told(term, "crash")):
            for part in ("p1", "p2"):
                assert f"(split_log, part {part}) repeats the work on its log: b,1 said failed: part is corrupt" in text


async def never_fences(_words: Sequence[str], _timeout_s: float) -> None:
    raise NotFenced("it ended with 1; it said: no route to the switch")


@virtual
async def test_a_fence_command_that_fails_is_told_by_the_crash_and_its_regions() -> None:
    options = replace(OPTIONS, fence="command", fence_command=("fence",))
    with mock.patch.object(fencing, "run_command", never_fences):
        async with running(RegionDisk(), options) as term:
            async with serving(Server(term, "a")):
                await ended(term, creates(term))
            await until_holds(lambda: "times" in because(term)[1])
            for text in (because(term)[1], told(term, "crash")):
                assert "(crash) failed " in text
                assert "times: the fence command failed: it ended with 1; it said: no route to the switch" in text


@virtual
async def test_the_line_of_a_region_that_is_late_has_the_cause() -> None:
    async with running(RegionDisk()) as term, serving(Broken(term, "a")):
        await creates(term)
        await until_holds(lambda: retried(term))
        with mock.patch.object(logging.getLogger("regent.regions"), "warning") as warned:
            assert await in_transition.tell_overdue(term.env, term.engine.records, 0) == 1
        assert f"; in the last attempt {BROKEN}" in str(warned.call_args)


def test_the_words_of_a_server_are_one_line_of_limited_length() -> None:
    text = said("a,1", Result(1, protocol.FAILED, text="no\n\x1b[31mred " + "x" * 5_000))
    assert text.startswith("a,1 said failed: no ?[31mred x")
    assert text.isprintable()
    assert len(text) == len("a,1 said failed: ") + SAID_CHARS_MAX


def test_causes_are_bounded_and_the_latest_come_first() -> None:
    causes = Causes()
    for number in range(KEPT_MAX + 5):
        causes.noted(number, number, str(number))
        causes.given_up(number, str(number))
    causes.noted(KEPT_MAX, 1, "again")
    assert next(causes.latest()).text == "again"
    assert len(list(causes.latest())) == KEPT_MAX
    assert (causes.of(0), causes.of(KEPT_MAX), causes.of_region(0), causes.of_region(9)) == ("", "again", "", "9")
