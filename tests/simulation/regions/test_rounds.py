"""Steps that come round more than once: a second closing, an undo in several steps, a fence that is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from controller.regions.fencing import LOG
from controller.regions.procedures import tables
from controller.regions.procedures.crash import PARTS_TOGETHER
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import DropRegions, DropTable, NewRegions
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Operation, Result
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.world import (
    OPTIONS,
    Server,
    creates,
    ended,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

TOGETHER, ROUNDS = 10, 3


class Bounded(MemoryRegionStore):
    """A store that writes few regions in a transaction, as ZooKeeper does. ``several``: some writes had new ones."""

    rows_max = TOGETHER

    def __init__(self, disk: RegionDisk) -> None:
        super().__init__(disk)
        self.several, self._rounds = asyncio.Event(), 0

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Refuses a row that is about more regions than one may be."""
        some = tuple(rows)
        for row in some:
            count = 0
            if isinstance(row, NewRegions):
                count = len(row.rows)
                self._rounds += 1
                if self._rounds > ROUNDS:
                    self.several.set()
            elif isinstance(row, DropRegions):
                count = len(row.ids)
            elif isinstance(row, DropTable):
                count = sum(one.table == row.name for one in self._rows.regions.values())
            if count > TOGETHER:
                raise StoreFailed(f"{count} regions in one write")
        await super().write(puts, deletes, some)
        await asyncio.sleep(0)


@virtual
async def test_a_creation_is_undone_in_as_many_steps_as_it_was_made() -> None:
    disk, stores = RegionDisk(), list[Bounded]()

    def opened(disk: RegionDisk) -> Bounded:
        stores.append(Bounded(disk))
        return stores[-1]

    async with running(disk, store=opened) as term:
        pid = await creates(term, "large", 50_000)
        await stores[0].several.wait()
        assert await term.engine.abort(pid)
        await until(lambda: term.engine.records[pid].state.is_final)
        record = term.engine.records[pid]
        assert (record.state, record.error) == (State.ROLLEDBACK, "aborted")
        assert TABLE_TASK.decode(record.data).made > TOGETHER, "it was made in several steps"
        assert not disk.regions
        assert "large" not in disk.tables
        async with serving(Server(term, "a")):
            await ended(term, creates(term, "large", 25))
        assert len(disk.regions) == 25


@virtual
async def test_a_disable_closes_in_a_second_round_what_was_moving_in_the_first() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        moving, *others = regions_of(term)
        term.env.model.attach(moving, 999)  # as a procedure does that moves it
        table = term.env.model.tables["t"]
        disables = asyncio.ensure_future(
            ended(term, procedure(term, "disable_table", TABLE_TASK.encode(TableTask("t"))))
        )
        await until(lambda: all(one.state is RegionState.CLOSED for one in others))
        await asyncio.sleep(3 * tables.PAUSE_MS / 1000)
        assert table.state is TableState.DISABLING
        term.env.model.detach(moving, 999)
        await asyncio.wait_for(disables, 60)
        assert (table.state, moving.state, moving.server) == (TableState.DISABLED, RegionState.CLOSED, None)


PARTS = [f"{number:03}" for number in range(PARTS_TOGETHER + 50)]


class Splitter(Server):
    """Fences logs of many parts, and splits them if it ``may``; notes those of the server "a"."""

    def __init__(self, term: RegionsTerm, name: str, *, may: bool) -> None:
        super().__init__(term, name)
        self.may, self.fenced = may, list[str]()
        self.split: set[str] = set()
        self.opened_after: list[int] = []

    def do(self, operation: Operation) -> Result:
        match operation:
            case protocol.Task(pid=pid, what="fence", server=server):
                self.fenced.append(server)
                return Result(pid, protocol.DONE, parts=PARTS)
            case protocol.Task(pid=pid, part=part) if not self.may:
                return Result(pid, protocol.FAILED, text=f"part {part} cannot be read yet")
            case protocol.Task(part=part, server="a"):
                self.split.add(part)
            case protocol.Open():
                self.opened_after.append(len(self.split))
        return super().do(operation)


@pytest.mark.seed("S2-55")
@virtual
async def test_a_log_whose_parts_a_daemon_forgot_is_fenced_again_and_split_whole_before_a_region_opens() -> None:
    disk, options = RegionDisk(), replace(OPTIONS, fence=LOG)
    async with running(disk, options) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=2))
    async with running(disk, options) as term:
        first = Splitter(term, "b", may=False)
        async with serving(first):
            await until(lambda: sum(one.kind == "split_log" for one in term.engine.live()) == PARTS_TOGETHER)
        assert (first.fenced, first.opened_after) == (["a"], [])
    async with running(disk, options) as term:
        second = Splitter(term, "c", may=True)
        async with serving(second):
            await until(lambda: {(str(one.server), one.state.name) for one in regions_of(term)} == {("c,1", "OPEN")})
    assert (second.fenced.count("a"), sorted(second.split)) == (1, PARTS)
    assert set(second.opened_after) == {len(PARTS)}
