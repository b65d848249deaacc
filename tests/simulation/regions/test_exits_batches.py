"""Ways out of batches whose children did not all fit into one write: no region stays attached to one that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from controller.regions.kinds import many
from metadata_store.records.codec import sealed
from regent_agent.protocol import Close, Operation
from state_machines.procedures.record import Record
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.states import RegionState, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.simulation.regions.exits_kit import at_rest, changes, creating, known
from tests.simulation.regions.kit import (
    OPTIONS,
    Server,
    creates,
    done,
    ended,
    regions_of,
    running,
    serving,
    until,
    virtual,
)

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
                    await ended(term, creates(term, regions=REGIONS))
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
                await ended(term, changes(term, "enable"))
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
                await ended(term, known(enabling))
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
