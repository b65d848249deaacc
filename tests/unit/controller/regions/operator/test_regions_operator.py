"""Parts of the operators' surface by themselves: keys as text, counts, cursors of pages, counters, gauges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.regions.environment import RegionsEnv
from controller.regions.in_transition import counted, oldest
from controller.regions.metrics import RegionCounters
from controller.regions.operator.counts import (
    by_state,
    halted,
    of_tables,
    owned_by_state,
    servers_of,
    stranded,
    waiting,
)
from controller.regions.operator.tables import table_item
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Transition
from state_machines.regions.changes import awaits_crash, is_stranded
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.layout import NotAKey, key_of, key_text
from state_machines.regions.model import Regions
from state_machines.regions.states import REPLACED, VALID_PREVIOUS, RegionState, ServerState, TableKind, TableState

S = RegionState
WALL_MS = 1_700_000_000_000


@given(st.binary(max_size=40))
def test_each_key_has_one_text(key: bytes) -> None:
    text = key_text(key)
    assert key_of(text) == key
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(("text", "key"), [("a b", b"a b"), ("\\x5C", b"\\"), ("\\xfF", b"\xff"), ("é", "é".encode())])
def test_keys_that_people_type(text: str, key: bytes) -> None:
    assert key_of(text) == key


@pytest.mark.parametrize("text", ["\\", "\\x", "\\x1", "a\\n", "\\xGG"])
def test_a_backslash_that_begins_nothing_is_refused(text: str) -> None:
    with pytest.raises(NotAKey, match="two hexadecimal digits"):
        key_of(text)


def model_of(count: int) -> tuple[Regions, Server]:
    """Returns a model with regions of one table, and one server."""
    model = Regions()
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    model.add_regions(
        table, [Region(n, table, b"%03d" % n if n > 1 else b"", b"", S.OFFLINE) for n in range(1, count + 1)]
    )
    server = Server("s1", 1, "s1:1", "", ServerState.ONLINE, {})
    model.servers[server.key] = server
    return model, server


def at(model: Regions, now_ms: int) -> RegionsEnv:
    """Returns what the counts read of an environment, at a time of the loop."""
    return cast("RegionsEnv", SimpleNamespace(model=model, now_ms=lambda: now_ms, wall_ms=lambda: WALL_MS + now_ms))


@given(st.lists(st.tuples(st.integers(1, 8), st.sampled_from(list(S)), st.booleans()), max_size=60))
def test_counts_are_those_of_a_look_at_each_region(moves: list[tuple[int, RegionState, bool]]) -> None:
    """Whatever a model went through, with and without procedures attached."""
    model, server = model_of(8)
    for number, state, attaches in moves:
        region = model.regions[number]
        if region.state in VALID_PREVIOUS[state]:
            if attaches:
                model.attach(region, 100 + number)
            model.move(region, state, server if state in (S.OPENING, S.OPEN, S.CLOSING) else None, 0)
            if not attaches:
                model.detach(region, 100 + number)
    assert by_state(model) == Counter(one.state for one in model.regions.values())
    assert stranded(model).total() == len([one for one in model.regions.values() if is_stranded(one)])
    for crashed in (ServerState.CRASHED, ServerState.FENCED):
        server.state = crashed
        left = [one for one in model.regions.values() if awaits_crash(one)]
        assert (waiting(model), of_tables(model).waiting["t"]) == (len(left), len(left))
        assert by_state(model)[S.OPEN] == 0
    [table] = model.tables.values()
    model.drop_last(table, 3)
    assert by_state(model).total() == 5 - sum(map(awaits_crash, model.regions.values()))
    assert all(table.count(one) == sum(region.state is one for region in table.regions) for one in S)


@pytest.mark.parametrize("server_state", ServerState)
@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("state", S)
def test_regions_that_are_known_from_their_rows_alone_are_counted_as_stranded_or_left_to_a_crash(
    state: S, held: bool, owned: bool, server_state: ServerState
) -> None:
    """No procedure moves them, so none is in transition, whatever the row says; one may hold a region where it is."""
    model, server = model_of(3)
    region = model.regions[1]
    model.restate(region, state)
    server.state = server_state
    if owned:
        region.server, server.regions[1] = server, region
    if held:
        assert model.hold(region, 9)
    assert stranded(model).total() == len([one for one in model.regions.values() if is_stranded(one)])
    model.detach(region, 9)
    assert (model.held, stranded(model).total()) == ({}, len([*filter(is_stranded, model.regions.values())]))


class Unseen(list[Region]):
    """Regions at which nothing may look one by one: there may be a million."""

    def __iter__(self) -> Iterator[Region]:
        raise AssertionError("a look at each region")


def test_counts_look_at_no_region_that_rests() -> None:
    """Open regions, those of disabled tables, and those that no server could open: each may be one of a million."""
    model, server = model_of(9)
    [table] = model.tables.values()
    for number, state in enumerate((S.OPEN, S.OPEN, S.FAILED_OPEN, S.CLOSED, S.OPENING), 1):
        model.move(model.regions[number], S.OPENING if state is not S.CLOSED else state, server, 0)
        if state not in (S.OPENING, S.CLOSED):
            model.move(model.regions[number], state, server if state is S.OPEN else None, 0)
    regions, table.regions = table.regions, Unseen(table.regions)
    model.regions = cast("dict[int, Region]", Unseen(regions))
    assert by_state(model) == {S.OPEN: 2, S.FAILED_OPEN: 1, S.CLOSED: 1, S.OPENING: 1, S.OFFLINE: 4}
    item = table_item(table, of_tables(model), model.damages)
    found = item.regions, item.open_regions, item.failed_regions, item.stranded_regions, item.in_transition
    assert found == (9, 2, 1, 6, 1)
    table.state = TableState.DISABLED
    assert stranded(model).total() == 0


STRANDED = {S.OFFLINE, S.OPENING, S.CLOSING, S.CLOSED, S.SPLITTING, S.MERGING, S.ABNORMALLY_CLOSED}


@pytest.mark.parametrize("table", TableState)
@pytest.mark.parametrize("state", [one for one in S if one not in REPLACED])
def test_a_region_is_stranded_where_its_table_is_enabled_and_nothing_goes_on(state: S, table: TableState) -> None:
    model, server = model_of(1)
    region = model.regions[1]
    region.state, region.table.state = state, table
    for owner in (None, server):
        region.server = owner
        assert is_stranded(region) == (state in STRANDED and table is TableState.ENABLED)
        region.pid = 7
        assert not is_stranded(region), "a procedure moves it"
        region.pid = 0
    for late_state in (ServerState.CRASHED, ServerState.FENCED):
        server.state = late_state
        assert not is_stranded(region), "a crash sees to it"


def test_tables_that_no_procedure_takes_on_are_named() -> None:
    model, _ = model_of(1)
    for name, state in (("a", TableState.CREATING), ("b", TableState.DISABLING), ("c", TableState.DISABLED)):
        model.add_table(Table(name, TableKind.USER, state, {}, []))
    goes_on = Record(1, "create_table", State.WAITING, 3, 0, 0, data=TABLE_TASK.encode(TableTask("a")))
    over = Record(2, "disable_table", State.SUCCESS, 3, 0, 0, data=TABLE_TASK.encode(TableTask("b")))
    assert halted(model, [goes_on, over, Record(3, "move", State.RUNNABLE, 0, 0, 0)]) == ["b"]
    assert halted(model, []) == ["a", "b"]


def test_transitions_by_age() -> None:
    model, server = model_of(3)
    for number, at_ms in ((1, 1_000), (2, 5_000)):
        model.move(model.regions[number], S.OPENING, server, at_ms)
    assert counted(at(model, 8_000), {}, model.transit.values(), 3_000) == (2, 1, 7_000)
    assert owned_by_state(model, server.key) == {S.OPENING: 2}
    server.leaving = True
    assert servers_of(model) == {"leaving": 1}


async def test_a_region_is_in_transition_for_no_longer_than_its_procedure_goes_on() -> None:
    model, server = model_of(2)
    for region in model.regions.values():
        model.move(region, S.OPENING, server, 1_000)
        model.move(region, S.OPEN, server, 1_000)
    moved = model.regions[1]
    model.attach(moved, 7)
    records = {7: Record(7, "move", State.RUNNABLE, 0, WALL_MS + 7_500, WALL_MS + 7_500)}
    env = at(model, 8_000)
    assert [(one.region, one.age_ms) for one in (await oldest(env, records, 10))[0]] == [(moved, 500)]
    assert counted(env, records, model.transit.values(), 3_000) == (1, 0, 500)
    assert counted(env, records, model.transit.values(), 400) == (1, 1, 500)
    assert counted(env, {}, model.transit.values(), 3_000) == (1, 1, 7_000)


def test_counters_follow_durable_changes() -> None:
    counters = RegionCounters()
    begun = Record(1, "crash", State.RUNNABLE, 0, 1_000, 1_000)
    ended = Record(1, "crash", State.SUCCESS, 3, 1_000, 4_500)
    undone = Record(2, "create_table", State.ROLLEDBACK, 0, 0, 10)
    counters.moved([Transition(None, begun), Transition(begun, ended), Transition(None, undone)])
    assert counters.submitted == {"crash": 1, "create_table": 1}
    assert counters.failed == {"create_table": 1}
    assert (counters.crashes.count, counters.crashes.total_s) == (1, 3.5)
