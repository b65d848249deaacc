"""The clock of the regions' domain: stored times hold their length, whatever becomes of the machine's wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest

from controller.regions.clock import KIND, STORED_EVERY_MS, SteadyClock, Uptime, uptime
from controller.regions.domain import RegionsDomain
from controller.regions.environment import Options
from controller.regions.operator.marks import MarkView
from controller.regions.operator.servers import server_item
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import MarkRow, PutMark, PutServer, ServerRow, Write
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from regent_agent.protocol import Register, Registered
from state_machines.procedures.record import Record
from state_machines.regions.marks import MarkKind
from tests.kit.deadlines import eventually

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
BEGAN_MS = 1_700_000_000_000


class Machine:
    """A machine whose wall clock is set, and that is booted again."""

    def __init__(self) -> None:
        self.boot, self.since_ms, self.set_ms = "first", 5_000_000, 0
        self._began_ms = BEGAN_MS - self.since_ms

    def wall_ms(self) -> int:
        return self._began_ms + self.since_ms + self.set_ms

    def up(self) -> Uptime:
        return Uptime(self.boot, self.since_ms)

    def reboot(self) -> None:
        self._began_ms += self.since_ms
        self.boot, self.since_ms = "second", 0

    def clock(self) -> SteadyClock:
        return SteadyClock(self.wall_ms, self.up)


@asynccontextmanager
async def loaded(folder: Path, machine: Machine) -> AsyncIterator[RegionsTerm]:
    """Yields the term of a daemon that was started just now."""
    catalog = SqliteCatalog()
    store = await SqliteRecords.open(folder / "regions.db", catalog)
    clock = machine.clock()
    term = RegionsTerm(store, catalog.of(store), store.epoch, Options(), wall_ms=machine.wall_ms, steady=clock)
    term.env.shown_ms = clock.shown_ms
    try:
        await term.load()
        yield term
    finally:
        await store.close()


@pytest.mark.parametrize("set_ms", [-DAY_MS, DAY_MS])
async def test_a_hold_lasts_as_long_as_it_was_given_for(tmp_path: Path, set_ms: int) -> None:
    machine = Machine()

    def left_ms(term: RegionsTerm) -> int:
        until_ms = term.env.model.marks.held_until_ms("s1", term.env.wall_ms())
        return until_ms - term.env.wall_ms() if until_ms else 0

    async with loaded(tmp_path, machine) as term:
        until_ms = term.env.wall_ms() + HOUR_MS
        await term._store.write((), (), (PutMark(MarkRow(MarkKind.HOLD.value, "s1", "", until_ms)),))
    async with loaded(tmp_path, machine) as term:
        machine.since_ms += HOUR_MS // 2
        machine.set_ms += set_ms
        assert left_ms(term) == HOUR_MS // 2, "within a process"
    async with loaded(tmp_path, machine) as term:
        assert left_ms(term) == HOUR_MS // 2, "and over a restart"
        machine.since_ms += HOUR_MS // 2
        assert left_ms(term) == 0


@pytest.mark.parametrize("set_ms", [-DAY_MS, DAY_MS])
async def test_the_end_of_a_hold_is_shown_as_the_machines_clock_will_show_it(tmp_path: Path, set_ms: int) -> None:
    machine = Machine()
    async with loaded(tmp_path, machine) as term:
        hold = MarkRow(MarkKind.HOLD.value, "s1", "", term.env.wall_ms() + HOUR_MS)
        rows: list[Write] = [PutServer(ServerRow("s1", 1, "s1:7000", "")), PutMark(hold)]
        rows.append(PutMark(MarkRow(MarkKind.CORDON.value, "s1")))
        await term._store.write((), (), rows)
    async with loaded(tmp_path, machine) as term:
        machine.set_ms += set_ms
        ends = datetime.fromtimestamp((machine.wall_ms() + HOUR_MS) / 1000, UTC)
        domain = cast("RegionsDomain", SimpleNamespace(term=term))
        assert [(one.kind, one.until) for one in MarkView(domain).listed()] == [("cordon", None), ("hold", ends)]
        [server] = term.env.model.servers.values()
        assert server_item(server, term.env).held_until == ends
        machine.since_ms += HOUR_MS
        assert [one.kind for one in MarkView(domain).listed()] == ["cordon"]
        assert server_item(server, term.env).held_until is None


async def test_a_clock_that_was_far_behind_at_the_first_start_keeps_no_server_out(tmp_path: Path) -> None:
    machine = Machine()
    machine.set_ms -= 30 * DAY_MS
    async with loaded(tmp_path, machine):
        pass
    machine.set_ms += 30 * DAY_MS
    async with loaded(tmp_path, machine) as term:
        now_us = machine.wall_ms() * 1_000
        assert term.env.wall_ms() < machine.wall_ms() - 29 * DAY_MS, "what waits goes on by the stored time"
        assert isinstance(await term.service.handle(Register("s1", now_us, "s1:1")), Registered)


@pytest.mark.parametrize(("set_ms", "now_ms"), [(-DAY_MS, BEGAN_MS), (DAY_MS, BEGAN_MS + DAY_MS + 60_000)])
def test_after_a_reboot_the_wall_clock_counts_but_the_time_never_goes_back(set_ms: int, now_ms: int) -> None:
    machine = Machine()
    stored = machine.clock().row().row
    machine.since_ms += 60_000
    machine.reboot()
    machine.set_ms = set_ms
    clock = machine.clock()
    clock.begin([stored])
    assert clock.now_ms() == now_ms


@pytest.mark.parametrize("value", ["", "first", "first x", " 5", "first 999999999999"])
def test_a_stored_time_that_is_no_such_is_of_another_boot(value: str) -> None:
    machine = Machine()
    clock = machine.clock()
    clock.begin([MarkRow("clock", "domain", value, BEGAN_MS + 7), MarkRow("hold", "s1", "", BEGAN_MS + DAY_MS)])
    assert clock.now_ms() == BEGAN_MS + 7


def test_a_time_is_shown_as_the_wall_clock_will_show_it() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.set_ms = -DAY_MS
    assert clock.shown_ms(BEGAN_MS + HOUR_MS) == BEGAN_MS + HOUR_MS - DAY_MS
    assert clock.shown_ms(0) == 0, "without an end"


def test_the_time_is_stored_from_time_to_time() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.is_due()
    clock.row()
    machine.set_ms = DAY_MS
    assert not clock.is_due()
    machine.since_ms += STORED_EVERY_MS
    assert clock.is_due()


async def test_a_store_that_takes_long_for_the_time_delays_no_crash(tmp_path: Path) -> None:
    """Nor does it give servers a new lease, as a daemon does that could not respond for a while."""
    machine = Machine()
    catalog = SqliteCatalog()
    store = await SqliteRecords.open(tmp_path / "regions.db", catalog)
    options = Options(lease_ms=400, startup_wait_ms=0)
    clock = machine.clock()
    term = RegionsTerm(store, catalog.of(store), store.epoch, options, wall_ms=machine.wall_ms, steady=clock)
    await term.load()
    hangs, over, write = asyncio.Event(), asyncio.Event(), store.write

    async def slow(puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        rows = tuple(rows)
        if any(isinstance(row, PutMark) and row.row.kind == KIND for row in rows):
            hangs.set()
            await over.wait()
        await write(puts, deletes, rows)

    with mock.patch.object(store, "write", slow):
        running = asyncio.ensure_future(term.run())
        assert isinstance(await term.service.handle(Register("s1", 1, "s1:1")), Registered)
        machine.since_ms += STORED_EVERY_MS
        await asyncio.wait_for(hangs.wait(), 60)
        await eventually(lambda: ("s1", 1) not in term.env.model.servers)
        assert not over.is_set()
        over.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    term.close(StoreFailed("the test is over"))
    await store.close()


async def test_a_daemon_that_lost_the_store_stores_no_time(tmp_path: Path) -> None:
    machine = Machine()
    async with loaded(tmp_path, machine) as term:
        catalog = SqliteCatalog()
        later = await SqliteRecords.open(tmp_path / "regions.db", catalog)
        before = (await catalog.of(later).read()).marks
        machine.since_ms += STORED_EVERY_MS
        with pytest.raises(StoreFailed):
            await term._store_time(machine.clock())
        assert (await catalog.of(later).read()).marks == before
        await later.close()


async def test_this_machine_names_its_boot_and_counts() -> None:
    first = uptime()
    assert first.boot
    await asyncio.sleep(0.01)
    assert uptime().since_ms > first.since_ms
