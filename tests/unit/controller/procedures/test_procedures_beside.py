"""The rest beside the first: of procedures under way, requests, early requests, parked parts, callers and results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.parking import Parking
from controller.procedures.requests import KEPT_MS, Abort, Command, ProcedureRefused, Results
from controller.procedures.writes import BLOCK, Pids
from metadata_store.records.port import StoreFailed
from state_machines.procedures.kernel import Change
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Failed, Outcome, Wait
from state_machines.procedures.record import NO_ENDING, Record
from state_machines.procedures.states import State
from testing.memory.region_store import Disk, MemoryRecords
from tests.contracts.records import record
from tests.kills.harness import Daemon, Notes, arrives, fails, last, onwards, spreads, step, topic
from tests.unit.controller.procedures.test_procedures_engine import NOBODY, OPS, Host, ended, submitted

T = Resource(Scope.TOPIC, "t")
OVER = StoreFailed("the store failed: a test")


# -- writes


@pytest.mark.parametrize("effect", [False, True])
async def test_procedures_whose_write_has_no_response_are_named_until_it_has_come(effect: bool) -> None:
    opened, host = asyncio.Event(), Host()

    async def slow(_: Notes, one: Record) -> Effect | Outcome:
        async def write(_change: object) -> str | None:
            await opened.wait()
            return "another writer was first"

        return Effect(onwards(_, one), write=write) if effect else Wait(0, b"waits")

    class Slow(MemoryRecords):
        async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
            written = tuple(puts)
            if any(one.data == b"waits" for one in written):
                await opened.wait()
            await super().write(written, deletes, rows)

    host.kinds = (Kind("root", (Step("slow", slow), step(last)), topic),)
    daemon = Daemon(host.notes, host.kinds, Slow(host.disk), host.clock)
    await daemon.engine.load()
    calls = [asyncio.ensure_future(daemon.engine.submit("root", name, NOBODY)) for name in (b"a", b"b")]
    await asyncio.sleep(0)
    turn = asyncio.ensure_future(daemon.engine.turn())
    while not turn.done() and not (daemon.engine.unanswered and all(call.done() for call in calls)):
        await asyncio.sleep(0)
        if turn.done() and not daemon.engine.unanswered:
            turn = asyncio.ensure_future(daemon.engine.turn())
    assert daemon.engine.unanswered == ([1] if effect else [1, 2])
    opened.set()
    await turn
    assert daemon.engine.unanswered == []


async def test_a_request_that_finds_the_store_failed_before_its_own_write_is_refused() -> None:
    class Failing(MemoryRecords):
        bytes_max = 1_000

        def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
            return sum(400 for _ in puts)

        async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
            raise OVER

    host = Host(Kind("root", (step(last),), topic))
    daemon = Daemon(host.notes, host.kinds, Failing(host.disk), host.clock)
    await daemon.engine.load()
    calls = [asyncio.ensure_future(daemon.engine.submit("root", b"t", NOBODY)) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(StoreFailed):
        await daemon.engine.turn()
    daemon.engine.close(OVER)
    assert await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60) == [OVER] * 4


async def test_an_effect_of_a_step_that_failed_is_not_written() -> None:
    written: list[object] = []

    async def gives_up(_: Notes, one: Record) -> Effect:
        async def write(change: object) -> str | None:
            written.append(change)
            return None

        return Effect(Failed("no room"), write=write)

    daemon = await Host(Kind("root", (Step("gives up", gives_up),), topic)).daemon()
    assert (await ended(daemon, await submitted(daemon, "root"))).state is State.ROLLEDBACK
    assert not written


# -- requests before a term, and what terms remember


async def test_early_requests_come_in_their_order_and_before_those_of_the_term() -> None:
    host = Host(
        Kind("root", (step(arrives), step(last)), lambda _: Demand(T, True), command=lambda one, more: one.data + more)
    )
    pid = await submitted(await host.daemon(), "root", b"0")
    parking = Parking()
    early = [parking.ask(Command(pid, number, NO_ENDING)) for number in (b"1", b"2")]
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    assert await daemon.run(daemon.engine.command(pid, b"3"))
    assert [await one for one in early] == [pid, pid]
    assert daemon.engine.records[pid].data == b"0123"


async def test_an_early_request_whose_caller_has_gone_is_not_carried_out_and_all_others_are_refused_together() -> None:
    host, parking = Host(Kind("root", (step(arrives), step(last)), topic)), Parking()
    pid = await submitted(await host.daemon(), "root")
    call = asyncio.ensure_future(parking.asked(Abort(pid, NO_ENDING), lambda: "a test"))
    await asyncio.sleep(0)
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    await daemon.engine.turn()
    assert not daemon.engine.records[pid].aborted
    early = [parking.ask(Abort(pid, NO_ENDING)) for _ in range(3)]
    parking.refuse_early("another daemon has the role")
    for found in await asyncio.wait_for(asyncio.gather(*early, return_exceptions=True), 60):
        assert isinstance(found, ProcedureRefused)


async def test_what_ended_elsewhere_is_neither_parked_nor_suspected_any_more() -> None:
    host, parking = Host(Kind("root", (step(arrives), step(last)), topic)), Parking()
    pid = await submitted(await host.daemon(), "root")
    for one in (pid, pid + 1):
        parking.park(one, "a test")
    for one in (pid + 2, pid + 3):
        parking.blame({one}, ValueError("a test"))
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    assert (list(daemon.engine.parked), parking.suspects) == ([pid], {})


async def test_an_abort_releases_each_parked_part_of_a_family() -> None:
    host, parking = Host(), Parking()
    host.kinds = (
        Kind("root", (step(spreads("part", 3)), step(last)), topic),
        Kind("part", (step(arrives), step(fails)), topic),
    )
    first = await host.daemon()
    pid = await submitted(first, "root")
    await first.until(lambda: len(first.engine.records) == 4)
    for one in (pid + 1, pid + 3):
        parking.park(one, "a test")
    daemon = Daemon(host.notes, host.kinds, MemoryRecords(host.disk), host.clock, parking=parking)
    await daemon.engine.load()
    assert await daemon.run(daemon.engine.abort(pid))
    assert (await ended(daemon, pid)).state is State.ROLLEDBACK
    assert not host.notes.there


# -- results and numbers


async def test_of_callers_that_wait_for_one_result_those_that_have_gone_keep_it_from_no_other() -> None:
    kept, over = Results(), StoreFailed("the term ended: a test")
    done = replace(record(1), state=State.SUCCESS, caller=OPS)
    gone, waits = kept.wait(1), kept.wait(1)
    gone.cancel()
    kept.ended(done, 0)
    assert await waits == done
    late, others = kept.wait(2), kept.wait(2)
    late.cancel()
    kept.close(over)
    with pytest.raises(StoreFailed):
        await others


def test_results_go_in_portions_and_each_once() -> None:
    kept = Results()
    for pid in range(1, 6):
        kept.ended(replace(record(pid), state=State.SUCCESS), 0)
        kept.fetched(pid, 0)
    assert [kept.take_due(KEPT_MS, 2) for _ in range(4)] == [[1, 2], [3, 4], [5], []]


async def test_numbers_follow_one_another_over_blocks_and_begin_anew_behind_a_gap() -> None:
    disk = Disk()
    store = MemoryRecords(disk)
    pids = Pids(store)
    pids.begin_after(0)
    await pids.reserve(BLOCK + 5)
    assert (pids.last, disk.last_pid) == (BLOCK + 5, BLOCK + 5)
    assert [pids.next() for _ in range(BLOCK + 3)] == list(range(1, BLOCK + 4))
    await pids.reserve(3)
    assert [pids.next() for _ in range(3)] == [BLOCK + 4, BLOCK + 5, BLOCK + 6], "what is left of a block is given"
    disk.last_pid += 10
    reserved = disk.last_pid
    await pids.reserve(BLOCK)
    assert pids.next() == reserved + 1, "numbers that another has reserved are left out"
    await pids.go_above(reserved + 5 * BLOCK)
    assert await pids.take() == reserved + 5 * BLOCK + 1
    assert pids.last <= disk.last_pid


async def test_many_that_want_numbers_in_a_row_at_once_share_one_reservation_and_leave_those_of_a_turn_alone() -> None:
    disk = Disk()
    store = MemoryRecords(disk)
    pids = Pids(store)
    await pids.reserve(2)
    promised = pids.last
    rows = await asyncio.gather(*(pids.row(2) for _ in range(100)))
    assert sorted(rows) == list(range(promised + 1, promised + 201, 2))
    assert disk.last_pid == promised + BLOCK, "one reservation for all of them"
    assert [pids.next(), pids.next()] == [1, 2], "the turn has the numbers that it has reserved"
    large = await pids.row(5 * BLOCK)
    assert large > max(rows) + 1
    assert disk.last_pid == large + 5 * BLOCK - 1, "a row that is longer than a block is reserved whole"
    await pids.row(1)
    above = disk.last_pid + 7
    await pids.go_above(above)
    assert await pids.row(1) > above, "what is left of a block is below that number, and is left out"


async def test_a_number_is_given_out_once_neither_a_procedure_nor_a_row_can_get_it() -> None:
    disk = Disk()
    disk.last_pid = 10
    pids = Pids(MemoryRecords(disk))
    pids.begin_after(10)
    await pids.reserve(2)
    first = await pids.row(2)
    given = {*range(1, 11), pids.next(), first, first + 1}
    assert {one for one in range(-1, first + 2 * BLOCK) if pids.is_given(one)} == given


def test_an_effect_that_writes_itself_has_no_rows_which_no_store_would_get() -> None:
    async def write(_: Change) -> None:
        return None

    with pytest.raises(ValueError, match="an effect with a write of its own has no rows"):
        Effect(Wait(0, b""), rows=("a row",), write=write)
