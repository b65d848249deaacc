"""The model of regions over many changes, and what picks up a region: whole tables, written down a second time."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from state_machines.regions.changes import awaits_crash, is_stranded, partly_made
from state_machines.regions.model import Region, Regions, Server, Table
from state_machines.regions.pickup import closes_first, way_of
from state_machines.regions.states import (
    IN_TRANSITION,
    OWNED,
    VALID_PREVIOUS,
    RegionState,
    ServerState,
    TableKind,
    TableState,
)
from tests.unit.state_machines.regions.test_region_states import a_server

S = RegionState
T = TableState
OWNERS = (None, *ServerState)
WAYS = {
    "OFFLINE": "ASSIGN REST REST REST",
    "OPENING": "ASSIGN CLOSE ASSIGN CLOSE",
    "OPEN": "ASSIGN CLOSE REST REST",
    "CLOSING": "ASSIGN CLOSE ASSIGN CLOSE",
    "CLOSED": "REST REST REST REST",
    "FAILED_OPEN": "REST REST REST REST",
    "ABNORMALLY_CLOSED": "ASSIGN CLOSE REST REST",
}
"""Without an owner: to be open, and not; then with one that serves."""


@pytest.mark.parametrize("state", S)
def test_a_region_that_no_procedure_moves_is_picked_up_as_written_down(state: S) -> None:
    for owner, table in product(OWNERS, T):
        waits_for_change = state is S.OFFLINE and table in (T.ENABLING, T.CREATING)
        wanted = table in (T.ENABLED, T.ENABLING, T.CREATING) and not waits_for_change
        expected = WAYS[state.name].split()[(0 if wanted else 1) + (0 if owner is None else 2)]
        if owner in (ServerState.CRASHED, ServerState.FENCED):
            expected = "CRASH"
        assert way_of(state, owner, table).name == expected, (owner, table)
        given_up = "CLOSE" if expected == "ASSIGN" else expected
        assert way_of(state, owner, table, given_up=True).name == given_up, (owner, table)


@pytest.mark.parametrize(("state", "owner"), list(product(S, OWNERS)))
def test_an_owner_that_may_be_opening_or_closing_closes_first(state: S, owner: ServerState | None) -> None:
    assert closes_first(state, owner) is (owner is ServerState.ONLINE and state in (S.OPENING, S.CLOSING))


@pytest.mark.parametrize("state", S)
def test_regions_that_nothing_sees_to_are_told_from_those_that_wait_for_a_crash(state: S) -> None:
    for owner, table, pid in product(OWNERS, T, (0, 5)):
        server = None if owner is None else Server("a", 1, "", "", owner, {})
        region = Region(1, Table("t", TableKind.USER, table, {}, []), b"", b"", state, server, pid=pid)
        rests = state in (S.OPEN, S.FAILED_OPEN)
        left = not pid and table is T.ENABLED and not rests and owner in (None, ServerState.ONLINE)
        assert is_stranded(region) is left, (owner, table, pid)
        crashed = owner in (ServerState.CRASHED, ServerState.FENCED)
        assert awaits_crash(region) is (state is S.OPEN and crashed), (owner, table, pid)


@pytest.mark.parametrize(("ends", "whole"), [([], False), ([b"m"], False), ([b"m", b"z"], False), ([b"m", b""], True)])
def test_a_table_is_whole_once_its_last_region_has_no_end(ends: list[bytes], whole: bool) -> None:
    table = Table("t", TableKind.USER, T.DISABLED, {}, [])
    starts = [b"", *ends]
    table.regions.extend(Region(at, table, starts[at], end, S.OFFLINE) for at, end in enumerate(ends))
    assert (partly_made(table) is None) is whole
    assert whole or f"has {len(ends)} of its regions" in (partly_made(table) or "")


class Told:
    """Records each call of an observer."""

    def __init__(self) -> None:
        self.rows: list[object] = []

    def attached(self, region: Region, pid: int) -> None:
        self.rows.append((region.id, pid))

    def moved(self, region: Region, before: S, had: Server | None) -> None:
        self.rows.append((region.id, before, had, region.state, region.server))


def check(model: Regions, servers: list[Server]) -> None:
    """Compares what the model counts and lists with a look at each region."""
    every = {one.id: one for table in model.tables.values() for one in table.regions}
    assert model.regions == every
    moving = {id_: one for id_, one in every.items() if one.pid or one.state in IN_TRANSITION}
    assert model.transit == moving
    for table in model.tables.values():
        assert table.transit == {id_: one for id_, one in moving.items() if one.table is table}
        states = [one.state for one in table.regions]
        assert {state: table.count(state) for state in S} == {state: states.count(state) for state in S}
    for server in servers:
        assert server.regions == {id_: one for id_, one in every.items() if one.server is server}


@pytest.mark.parametrize("seed", range(8))
def test_counts_and_lists_are_those_of_the_regions_after_any_changes(seed: int) -> None:
    draw, model, told, servers = Random(seed), Regions(), Told(), [a_server("a"), a_server("b", 3)]
    model.observer = told
    for name in ("t", "u"):
        table = Table(name, TableKind.USER, T.ENABLED, {}, [])
        model.add_table(table)
        first = len(model.regions) + 1
        some = [Region(first + at, table, b"%02d" % at, b"", draw.choice((S.OFFLINE, S.OPEN))) for at in range(6)]
        model.add_regions(table, some)
        model.add_regions(table, some[:3])  # a write that is repeated
    gone: list[Region] = []
    for now_ms in range(1, 200):
        if not model.regions:
            break
        region = draw.choice(list(model.regions.values()))
        told.rows.clear()
        match draw.randrange(12):
            case 0 | 1 | 2:
                pid = draw.choice((4, 5))
                expected = [] if region.pid == pid else [(region.id, pid)]
                model.attach(region, pid)
                assert (region.pid, told.rows) == (pid, expected)
            case 3 | 4 | 5:
                pid, had = draw.choice((4, 5)), region.pid
                model.detach(region, pid)
                assert region.pid == (0 if had == pid else had)
            case 6 if len(region.table.regions) > 1 and now_ms > 100:
                gone += region.table.regions[-2:]
                model.drop_last(region.table, 2)
            case 7 if now_ms > 180:
                gone += region.table.regions
                model.drop_table(region.table.name)
            case _:
                after = draw.choice([state for state in S if region.state in VALID_PREVIOUS[state]])
                to = draw.choice(servers) if after in OWNED else None
                row = (region.id, region.state, region.server, after, to)
                model.move(region, after, to, now_ms)
                assert (region.changed_ms, told.rows) == (now_ms, [row])
        check(model, servers)
        assert all(one.server is None and one.id not in model.ids for one in gone)
    assert gone, "some were dropped"
