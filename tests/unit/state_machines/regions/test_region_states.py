"""States of regions and tables: transitions over their full product, and the model over many changes."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from state_machines.regions.changes import awaits_crash, is_stranded, partly_made
from state_machines.regions.entities import Region, Server, Table, namespace_of
from state_machines.regions.model import BURIED_MAX, FORGOTTEN_TOGETHER, InvalidTransition, Regions
from state_machines.regions.states import (
    FINAL,
    IN_TRANSITION,
    OWNED,
    REPLACED,
    TABLE_PREVIOUS,
    VALID_PREVIOUS,
    RegionState,
    ServerState,
    TableKind,
    TableState,
)
from state_machines.regions.transit import closes_first, way_of

S = RegionState
ALLOWED = {
    "OFFLINE": "OPENING CLOSED",
    "OPENING": "OPENING OPEN CLOSING FAILED_OPEN ABNORMALLY_CLOSED",
    "OPEN": "OPEN CLOSING SPLITTING MERGING ABNORMALLY_CLOSED",
    "CLOSING": "CLOSING CLOSED ABNORMALLY_CLOSED",
    "CLOSED": "OPENING CLOSED OFFLINE SPLIT MERGED",
    "SPLITTING": "OPEN CLOSING ABNORMALLY_CLOSED",
    "MERGING": "OPEN CLOSING ABNORMALLY_CLOSED",
    "SPLIT": "",
    "MERGED": "",
    "FAILED_OPEN": "OPENING OFFLINE",
    "ABNORMALLY_CLOSED": "OPENING CLOSED OFFLINE",
}
"""Written down a second time, from each state to the next ones."""


def a_table(*, kind: TableKind = TableKind.USER, state: TableState = TableState.ENABLED, name: str = "t") -> Table:
    return Table(name, kind, state, {}, [])


def a_server(name: str = "a", incarnation: int = 1) -> Server:
    return Server(name, incarnation, f"{name}:1", "", ServerState.ONLINE, {}, here=True)


def a_model(*states: RegionState) -> tuple[Regions, list[Region]]:
    model, table = Regions(), a_table()
    model.add_table(table)
    regions = [Region(number + 1, table, b"%02d" % number, b"", state) for number, state in enumerate(states)]
    model.add_regions(table, regions)
    return model, regions


@pytest.mark.seed("S1-26", "S1-31", "S1-64")
@pytest.mark.parametrize(("before", "after"), list(product(S, S)))
def test_each_transition_is_allowed_or_refused_as_written_down(before: RegionState, after: RegionState) -> None:
    allowed = after.name in ALLOWED[before.name].split()
    assert (before in VALID_PREVIOUS[after]) is allowed
    model, [region] = a_model(before)
    server = a_server() if after in OWNED else None
    if not allowed:
        with pytest.raises(InvalidTransition, match=f"from {before.name} to {after.name}"):
            model.move(region, after, server, 7)
        assert (region.state, region.server, region.changed_ms) == (before, None, 0), "nothing changed"
        return
    model.move(region, after, server, 7)
    assert (region.state, region.server, region.changed_ms) == (after, server, 7)
    assert (region.id in model.transit) is (after in IN_TRANSITION)


def test_final_states_are_those_that_no_procedure_has_to_leave() -> None:
    assert {S.OFFLINE, S.OPEN, S.CLOSED, S.FAILED_OPEN, S.SPLIT, S.MERGED} == FINAL
    assert set(S) == FINAL | IN_TRANSITION
    assert (S.SPLITTING, S.SPLIT, S.MERGING, S.MERGED) == (5, 6, 9, 10), "as in HBase"
    assert {state.value for state in S}.isdisjoint({11, 12}), "an heir is CLOSED, and attached"


@pytest.mark.parametrize(("before", "after"), list(product(TableState, TableState)))
def test_a_table_goes_round_and_leaves_nothing_half_done(before: TableState, after: TableState) -> None:
    steps = {
        ("CREATING", "ENABLED"),
        ("ENABLED", "DISABLING"),
        ("DISABLING", "DISABLED"),
        ("DISABLED", "ENABLING"),
        ("ENABLING", "ENABLED"),
        ("DISABLED", "DELETING"),
        ("CREATING", "ENABLING"),
        ("CREATING", "DISABLING"),
        ("CREATING", "DELETING"),
        ("ENABLING", "DISABLING"),
        ("DISABLED", "TRUNCATING"),
        ("TRUNCATING", "DISABLED"),
        ("TRUNCATING", "DELETING"),
    }
    again = before is after and before.name.endswith("ING") and before is not TableState.CREATING
    assert (before in TABLE_PREVIOUS[after]) is ((before.name, after.name) in steps or again)


@pytest.mark.seed("S1-1", "S3-20")
def test_a_region_is_in_the_list_of_its_server_alone() -> None:
    model, [region] = a_model(S.OFFLINE)
    first, second = a_server("a"), a_server("b")
    model.move(region, S.OPENING, first, 1)
    model.move(region, S.OPENING, second, 2)
    assert not first.regions
    assert list(second.regions) == [region.id]
    model.move(region, S.OPEN, second, 3)
    model.move(region, S.ABNORMALLY_CLOSED, None, 4)
    assert not second.regions
    assert region.server is None


@pytest.mark.seed("S1-35", "S3-20")
def test_an_attached_procedure_keeps_a_region_in_transit_until_it_lets_go() -> None:
    model, [region] = a_model(S.OPEN)
    model.attach(region, 5)
    assert model.transit == {region.id: region}
    model.detach(region, 4)
    assert region.pid == 5, "another procedure cannot detach it"
    model.detach(region, 5)
    assert not region.pid
    assert not model.transit


def test_a_key_is_in_one_region() -> None:
    model, regions = a_model(S.OPEN, S.OPEN, S.OPEN)
    table = model.tables["t"]
    regions[0].start = b""
    assert model.located(table, b"") is regions[0]
    assert model.located(table, b"01") is regions[1]
    assert model.located(table, b"01x") is regions[1]
    assert model.located(table, b"\xff") is regions[2]
    assert model.located(a_table(name="empty"), b"k") is None


@pytest.mark.seed("S1-91")
def test_a_process_is_fenced_once_it_is_not_known_any_more() -> None:
    model, old, new = Regions(), a_server("a", 1), a_server("a", 2)
    model.servers |= {old.key: old, new.key: new}
    assert model.current("a") is new
    old.state = ServerState.CRASHED
    assert not model.is_fenced(old.key), "a crashed one may still write"
    old.state = ServerState.FENCED
    assert model.is_fenced(old.key)
    model.drop_server(old.key)
    assert model.is_fenced(old.key)
    assert not model.is_fenced(new.key)


def test_names_that_are_too_many_are_forgotten_some_at_a_time() -> None:
    model = Regions()
    model.buried = {f"old-{number}": 1 for number in range(BURIED_MAX + 2 * FORGOTTEN_TOGETHER)}
    for number in range(3):
        change = model.bury((f"new-{number}", 1), number)
        assert len(change.forgotten) <= FORGOTTEN_TOGETHER
        model.enter_buried(change)
    assert len(model.buried) == BURIED_MAX
    assert model.is_buried(("new-0", 1))
    assert not model.is_buried(("old-0", 1))


def test_only_servers_that_have_come_get_regions() -> None:
    model, one = Regions(), a_server()
    model.servers[one.key] = one
    assert list(model.online()) == [one]
    one.here = False
    assert not list(model.online())
    one.here, one.leaving = True, True
    assert not list(model.online())


def test_a_dropped_table_leaves_nothing() -> None:
    model, [region] = a_model(S.OFFLINE)
    server = a_server()
    model.move(region, S.OPENING, server, 1)
    model.drop_table("t")
    assert (model.regions, model.tables, model.transit, server.regions) == ({}, {}, {}, {})
    model.drop_table("t")


def test_the_namespace_is_the_part_before_the_colon() -> None:
    assert [namespace_of("t"), namespace_of("ns:t")] == ["default", "ns"]


T = TableState
OWNERS = (None, *ServerState)
WAYS = {
    "OFFLINE": "ASSIGN REST REST REST",
    "OPENING": "ASSIGN CLOSE ASSIGN CLOSE",
    "OPEN": "ASSIGN CLOSE REST REST",
    "CLOSING": "ASSIGN CLOSE ASSIGN CLOSE",
    "CLOSED": "REST REST REST REST",
    "SPLITTING": "ASSIGN CLOSE ASSIGN CLOSE",
    "MERGING": "ASSIGN CLOSE ASSIGN CLOSE",
    "SPLIT": "REST REST REST REST",
    "MERGED": "REST REST REST REST",
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
    may_have_it = state in (S.OPENING, S.CLOSING, S.SPLITTING, S.MERGING)
    assert closes_first(state, owner) is (owner is ServerState.ONLINE and may_have_it)


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
                states = [state for state in S if region.state in VALID_PREVIOUS[state] and state not in REPLACED]
                after = draw.choice(states)
                to = draw.choice(servers) if after in OWNED else None
                row = (region.id, region.state, region.server, after, to)
                model.move(region, after, to, now_ms)
                assert (region.changed_ms, told.rows) == (now_ms, [row])
        check(model, servers)
        assert all(one.server is None and one.id not in model.ids for one in gone)
    assert gone, "some were dropped"
