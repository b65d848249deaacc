"""States of regions and tables: the tables of transitions over their full product, and what the model makes of them."""

from __future__ import annotations

from itertools import product

import pytest

from state_machines.regions.model import (
    BURIED_MAX,
    FORGOTTEN_TOGETHER,
    InvalidTransition,
    Region,
    Regions,
    Server,
    Table,
    namespace_of,
)
from state_machines.regions.states import (
    FINAL,
    IN_TRANSITION,
    OWNED,
    TABLE_PREVIOUS,
    VALID_PREVIOUS,
    RegionState,
    ServerState,
    TableKind,
    TableState,
)

S = RegionState
ALLOWED = {
    "OFFLINE": "OPENING CLOSED",
    "OPENING": "OPENING OPEN CLOSING FAILED_OPEN ABNORMALLY_CLOSED",
    "OPEN": "OPEN CLOSING ABNORMALLY_CLOSED",
    "CLOSING": "CLOSING CLOSED ABNORMALLY_CLOSED",
    "CLOSED": "OPENING CLOSED OFFLINE",
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
    assert {S.OFFLINE, S.OPEN, S.CLOSED, S.FAILED_OPEN} == FINAL
    assert set(S) == FINAL | IN_TRANSITION
    assert {state.value for state in S}.isdisjoint({5, 6, 9, 10, 11, 12}), "these belong to split and merge"


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
