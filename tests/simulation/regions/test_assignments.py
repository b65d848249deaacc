"""What assignments write and where they place: few writes, different servers in one turn, early moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

from controller.http.procedures import Procedure
from controller.regions.environment import Options
from controller.regions.procedures import assign, creation
from controller.regions.procedures.messages import CRASH, MOVE, TABLE_TASK, TRANSIT, Crash, Move, TableTask, Transit
from controller.regions.procedures.servers import DRAIN
from controller.regions.term import RegionsTerm
from metadata_store.catalog.rows import NewRegions, Owner, PutTable
from regent_agent import protocol
from regent_agent.protocol import CLOSED, FAILED_OPEN, OPENED, Close, Open, Refused, Result, Routes
from state_machines.regions.states import FINAL, RegionState, TableState
from testing.memory.region_store import RegionDisk
from tests.kit.regions.noting import Noting, Told, Transaction, rows_of
from tests.kit.regions.world import (
    Server,
    creates,
    ended,
    lists,
    procedure,
    regions_of,
    running,
    serving,
    until,
    virtual,
)
from tests.simulation.regions.operating import Operator, Refusal

S = RegionState
ONE_ATTEMPT = Options(lease_ms=3_000, startup_wait_ms=1_000, open_attempts_max=1)


def changes(term: RegionsTerm, kind: str, table: str = "t") -> asyncio.Future[bytes]:
    return asyncio.ensure_future(ended(term, procedure(term, kind, TABLE_TASK.encode(TableTask(table)))))


def transit(term: RegionsTerm, kind: str, region: int) -> asyncio.Future[bytes]:
    return asyncio.ensure_future(ended(term, procedure(term, kind, TRANSIT.encode(Transit(region, "t")))))


@pytest.mark.seed("S1-6", "S2-53", "S3-18")
@virtual
async def test_an_assignment_is_one_row_of_the_catalog_and_two_transactions() -> None:
    """The first one stores the server that was chosen, the second one the owner."""
    noted: list[Transaction] = []
    async with running(RegionDisk(), store=partial(Noting, noted)) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
        for region in regions_of(term):
            pid = region.token
            first, second = [one for one in noted if one.is_about(pid)]
            assert (len(first.rows), first.deletes) == (0, [])
            owner = Owner(region.id, S.OPEN, "a", 1, pid, region.sequence)
            assert owner in second.rows
            assert [row for row in rows_of(noted) if isinstance(row, Owner) and row.id == region.id] == [owner]
    assert [step.name for step in assign.ASSIGN.steps] == ["queue", "dispatch"]


@pytest.mark.seed("S1-9", "S1-34", "S3-8")
@virtual
async def test_the_catalog_holds_final_states_alone_whatever_happens_to_a_table() -> None:
    noted: list[Transaction] = []
    async with running(RegionDisk(), store=partial(Noting, noted)) as term, serving(other := Server(term, "b")):
        async with serving(Server(term, "a")):
            await ended(term, creates(term, regions=4))
            assert {one.state for one in regions_of(term)} == {S.OPEN}
            region = next(one for one in regions_of(term) if str(one.server) == "a,1")
            await ended(term, procedure(term, "move", MOVE.encode(Move(region.id, "t", "b"))))
            await changes(term, "disable_table")
            assert {one.state for one in regions_of(term)} == {S.CLOSED}
            assert not other.has
            await changes(term, "enable_table")
            assert {one.state for one in regions_of(term)} == {S.OPEN}
        await until(lambda: ("a", 1) not in term.env.model.servers)
        assert other.has == {one.id: one.token for one in regions_of(term)}
    rows = rows_of(noted)
    stored = {S(row.state) for row in rows if isinstance(row, Owner)}
    made = {S(region.state) for row in rows if isinstance(row, NewRegions) for region in row.rows}
    assert (stored, made) == ({S.OPEN, S.CLOSED, S.OFFLINE}, {S.OFFLINE}), "a moved region is to be opened again"
    assert stored | made <= FINAL


@pytest.mark.seed("S1-46", "S1-71", "S3-8")
@virtual
async def test_while_a_server_opens_a_region_nothing_is_written_and_its_response_is_the_next_write() -> None:
    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "a")
        await server.register()
        made = asyncio.ensure_future(ended(term, creates(term)))
        one = await server.operation()
        [region] = regions_of(term)
        before = disk.bodies.copy(), disk.regions.copy(), disk.tables.copy()
        for _ in range(20):
            assert await server.poll() == []
        assert (disk.bodies, disk.regions, disk.tables) == before
        assert not made.done()
        record = term.engine.records[one.pid]
        assert (record.step, TRANSIT.decode(record.data).server) == (assign.DISPATCH, "a"), "the store has the rest"
        assert (region.state, disk.regions[region.id].state) == (S.OPENING, S.OFFLINE)
        await server.report(Result(one.pid, OPENED, 9))
        assert region.state == disk.regions[region.id].state == S.OPEN
        assert region.sequence == disk.regions[region.id].sequence == 9
        assert await made == b"0"


@pytest.mark.seed("S1-47", "S1-48", "S1-71")
@virtual
async def test_a_failure_returns_to_the_operation_on_the_table_and_to_the_operator() -> None:
    disk = RegionDisk()
    async with running(disk, ONE_ATTEMPT) as term:
        server = Server(term, "a")
        await server.register()
        made = asyncio.ensure_future(ended(term, creates(term, regions=2)))
        while len(found := await server.poll()) < 2:
            assert not found
        first, second = found
        await server.report(Result(first.pid, OPENED), Result(second.pid, FAILED_OPEN, text="the disk is full"))
        assert await made == b"1", "one region could not be opened"
        assert isinstance(second, Open)
        assert disk.regions[second.region].state == term.env.model.regions[second.region].state == S.FAILED_OPEN
        again = transit(term, "assign", second.region)
        one = await server.operation()
        await server.report(Result(one.pid, FAILED_OPEN, text="the disk is full"))
        assert await again == b"failed_open: the disk is full"


@pytest.mark.seed("S2-17")
@virtual
async def test_a_table_is_laid_out_then_has_its_rows_and_then_its_descriptor() -> None:
    noted: list[Transaction] = []
    async with running(RegionDisk(), store=partial(Noting, noted)) as term:
        server = Server(term, "a")
        await server.register()
        made = asyncio.ensure_future(ended(term, creates(term)))
        one = await server.operation()
        assert isinstance(await server.ask(protocol.Locate("t", b"k")), Refused), "clients do not see it yet"
        await server.report(Result(one.pid, OPENED, 1))
        await made
        assert isinstance(await server.ask(protocol.Locate("t", b"k")), Routes)
    steps = [
        (creation.CREATE_TABLE.steps[put.step].name, [type(row) for row in one.rows])
        for one in noted
        for put in one.puts
        if put.kind == "create_table" and not put.state.is_final
    ]
    assert steps[:3] == [("layout", []), ("metadata", []), ("assign", [PutTable, NewRegions])]
    states = [row.row.state for row in rows_of(noted) if isinstance(row, PutTable)]
    assert states == [TableState.CREATING, TableState.ENABLED]
    assert isinstance(rows_of(noted)[-1], PutTable), "the descriptor comes last"


@pytest.mark.seed("S0-10", "S1-8")
@virtual
async def test_a_daemon_that_starts_assigns_the_regions_that_nobody_has() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term, regions=3))
    nobodys, gone, _ = disk.regions
    disk.put(Owner(nobodys, S.OFFLINE, "", 0, 1, 1))
    disk.put(Owner(gone, S.OPEN, "z", 1, 1, 1))
    async with running(disk) as term, serving(server := Server(term, "b")):
        await until(lambda: server.has.keys() >= {nobodys, gone})
        assert disk.regions[gone].server == disk.regions[nobodys].server == "b"


@pytest.mark.seed("S1-3", "S3-5")
@virtual
async def test_the_memory_of_the_next_daemon_is_made_from_catalog_and_records() -> None:
    def remembered(term: RegionsTerm) -> list[tuple[object, ...]]:
        return [
            (
                one.id,
                one.state,
                str(one.server),
                one.token,
                one.sequence,
                one.state is S.OPENING and one.opening,
                one.pid,
            )
            for one in term.env.model.regions.values()
        ]

    disk = RegionDisk()
    async with running(disk) as term:
        server = Server(term, "a")
        async with serving(server):
            await ended(term, creates(term, regions=3))
            closed, moving, _ = regions_of(term)
            await transit(term, "close", closed.id)
        await procedure(term, "move", MOVE.encode(Move(moving.id, "t", "a", reopens=True)))
        await creates(term, "u", regions=2)
        await until(lambda: "u" in term.env.model.tables and len(term.env.model.transit) == 3)
        before = remembered(term)
        assert {one.state for one in term.env.model.regions.values()} == {S.OPEN, S.CLOSING, S.CLOSED, S.OPENING}
    async with running(disk) as term:
        assert remembered(term) == before


@pytest.mark.seed("S1-65")
@virtual
async def test_a_server_closes_a_region_in_the_same_way_whether_it_or_its_table_is_to_be_closed() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(server := Told(term, "a")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        token = region.token
        await transit(term, "close", region.id)
        assert (region.state, disk.tables["t"].state) == (S.CLOSED, TableState.ENABLED)
        await transit(term, "assign", region.id)
        again = region.token
        await changes(term, "disable_table")
        assert (region.state, disk.tables["t"].state) == (S.CLOSED, TableState.DISABLED)
        closes = [one for one in server.told if not isinstance(one, Open)]
        assert [(type(one), one.region, one.token) for one in closes if isinstance(one, Close)] == [
            (Close, region.id, token),
            (Close, region.id, again),
        ]
        assert len(closes) == 2
        assert {super(Told, server).do(one).outcome for one in closes} == {CLOSED}


@virtual
async def test_a_new_region_is_as_old_as_its_creation() -> None:
    async with running(RegionDisk()) as term:
        await asyncio.sleep(3_600)
        creating = asyncio.ensure_future(ended(term, creates(term, regions=1)))
        await until(lambda: bool(term.env.model.regions))
        [region] = regions_of(term)
        assert term.env.now_ms() - region.changed_ms < 1_000
        creating.cancel()


@pytest.mark.parametrize("placement", ["retain", "round_robin"])
def test_a_drain_spreads_the_regions_over_the_other_servers(placement: str) -> None:
    @virtual
    async def story() -> None:
        async with running(RegionDisk(), placement=placement) as term, serving(Server(term, "a")):
            await ended(term, creates(term, regions=40))
            async with serving(Server(term, "b"), Server(term, "c")):
                await ended(term, procedure(term, DRAIN, CRASH.encode(Crash("a", 1))))
                counts = Counter(str(one.server) for one in regions_of(term))
                assert counts == {"b,1": 20, "c,1": 20}
                assert [one.expected for one in term.env.model.servers.values()] == [0, 0, 0]

    story()


@virtual
async def test_a_drain_waits_for_a_region_for_which_a_step_of_its_turn_has_chosen_the_server() -> None:
    """Its end means that the server may be stopped."""
    async with running(RegionDisk(), placement="round_robin") as term, serving(Server(term, "b")):
        fails = Server(term, "a")
        await fails.register()
        created = asyncio.ensure_future(ended(term, creates(term)))
        opening = await fails.operation()
        reported = asyncio.ensure_future(fails.report(Result(opening.pid, protocol.FAILED_OPEN)))
        drained = asyncio.ensure_future(ended(term, procedure(term, DRAIN, CRASH.encode(Crash("b", 1)))))
        await reported
        serves = asyncio.ensure_future(fails.serve())
        await drained
        assert [str(one.server) for one in regions_of(term)] == ["a,1"]
        assert await created == b"0"
        serves.cancel()


@virtual
async def test_a_move_to_a_server_that_has_not_come_to_the_new_term_yet_closes_nothing_and_is_done_later() -> None:
    disk = RegionDisk()
    async with running(disk) as term, serving(Server(term, "a")):
        await ended(term, creates(term))
        await Server(term, "b").register()
        [before] = regions_of(term)
    async with running(disk) as term:
        operator = Operator(lambda: term)
        owner, wanted = Server(term, "a"), Server(term, "b")
        await owner.register(*lists([before]))
        [region] = regions_of(term)
        refused = await operator.does(f"regions move {region.id} b")
        assert isinstance(refused, Refusal)
        assert "server b,1 has not come to this daemon yet" in refused.text
        assert "try again in some seconds" in refused.text
        assert (region.state, str(region.server), region.pid) == (RegionState.OPEN, "a,1", 0)
        async with serving(owner, wanted):
            found = await operator.does(f"regions move {region.id} b")
            assert isinstance(found, Procedure)
            await term.engine.result(found.pid)
            assert (region.state, str(region.server)) == (RegionState.OPEN, "b,1")
