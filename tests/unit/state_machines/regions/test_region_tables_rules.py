"""Rules of changes of whole tables, over the product of what they look at: reopening, options, data that is needed."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from state_machines.regions import changes, references
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.shapes import Snapshot, SnapshotRow, Source
from state_machines.regions.states import OWNED, RegionState, ServerState, TableKind, TableState

S, T = RegionState, TableState


def a_table(model: Regions, name: str = "t", state: TableState = T.ENABLED, regions: int = 1, first: int = 1) -> Table:
    table = Table(name, TableKind.USER, state, {}, [], version=2)
    keys = [b"", *(b"%02d" % number for number in range(1, regions)), b""]
    model.add_table(table)
    made = [Region(first + at, table, start, end, S.OPEN) for at, (start, end) in enumerate(pairwise(keys))]
    model.add_regions(table, made)
    return table


def a_server(name: str, state: ServerState = ServerState.ONLINE) -> Server:
    return Server(name, 1, f"{name}:1", "", state, {}, here=True)


def a_source(region: int, snapshot: str = "") -> Source:
    return Source(region, b"", b"", 1, 1, snapshot)


@pytest.mark.parametrize(("state", "version", "pid", "owner"), list(product(S, (1, 2), (0, 9), (None, *ServerState))))
def test_a_region_is_opened_again_where_it_is_open_with_former_options_and_nothing_moves_it(
    state: RegionState, version: int, pid: int, owner: ServerState | None
) -> None:
    table = a_table(Regions())
    [region] = table.regions
    region.state, region.version, region.pid = state, version, pid
    region.server = None if owner is None else a_server("a", owner)
    some, behind = changes.to_reopen(table.regions, 0, 10, 10)
    wanted = state is S.OPEN and version == 1 and not pid and owner is ServerState.ONLINE
    assert (some, behind) == ([region] if wanted else [], 1)
    fenced = owner is ServerState.FENCED
    assert changes.is_outdated(region) is (state is S.OPEN and version == 1 and not fenced)
    goes_on = pid != 0 or owner is not ServerState.ONLINE
    may_be = state is S.OPENING and version == 1 and owner is not None and goes_on and not fenced
    assert changes.may_be_outdated(region) is may_be, "else an operator has it opened with the present options"
    assert state in OWNED or not changes.is_outdated(region)


def test_as_many_regions_are_opened_again_at_a_time_as_both_bounds_let() -> None:
    table = a_table(Regions(), regions=6)
    servers = a_server("a"), a_server("b")
    for at, region in enumerate(table.regions):
        region.server = servers[at // 3]
    assert changes.to_reopen(table.regions, 0, 10, 2) == ([table.regions[at] for at in (0, 1, 3, 4)], 6)
    assert changes.to_reopen(table.regions, 0, 3, 2) == ([table.regions[at] for at in (0, 1, 3)], 4)
    assert changes.to_reopen(table.regions, 4, 3, 2) == (table.regions[4:], 6)
    assert changes.to_reopen(table.regions, 0, 0, 2)[0] == [], "no server is online"


@pytest.mark.parametrize("state", T)
def test_options_change_in_states_that_last(state: TableState) -> None:
    why = changes.modification_problem(a_table(Regions(), state=state))
    assert (why is None) is (state in (T.ENABLED, T.DISABLED))
    assert why is None or f"is {state.name.lower()}, and must be enabled or disabled" in why


def test_options_are_set_and_removed() -> None:
    assert changes.options_after({"a": "1", "b": "2"}, {"b": "3", "c": "4"}, ["a"]) == {"b": "3", "c": "4"}


@pytest.mark.parametrize(
    ("state", "whole", "drops_splits"), list(product((T.DISABLED, T.TRUNCATING), (True, False), (True, False)))
)
def test_a_table_that_lacks_regions_is_truncated_to_one_or_deleted(
    state: TableState, whole: bool, drops_splits: bool
) -> None:
    table = a_table(Regions(), state=state, regions=3)
    if not whole:
        del table.regions[-1]
    why = changes.truncation_problem(table, drops_splits=drops_splits)
    assert (why is None) is (whole or (drops_splits and state is T.TRUNCATING))
    assert why is None or "delete it" in why


def test_data_is_needed_by_regions_of_other_tables_alone() -> None:
    model = Regions()
    table, copy = a_table(model, regions=2), a_table(model, "copy", regions=2, first=11)
    assert references.needed_by(model, table) is None
    model.sources[1] = (a_source(2),)
    model.sources[11] = (a_source(1, "s"),)
    assert references.needed_by(model, table) is None, "its own region, and one that needs a snapshot"
    model.sources[11] = (a_source(1),)
    model.sources[12] = (a_source(2),)
    why = references.needed_by(model, table)
    assert why is not None
    assert why.startswith("table 't' is needed by region #11 of copy and 1 more: wait until")
    assert why.endswith("or delete table copy")
    assert references.needed_by(model, copy) is None


def test_a_snapshot_is_needed_by_regions_that_begin_as_it() -> None:
    model = Regions()
    a_table(model, "copy", first=11)
    model.sources[11] = (a_source(1, "s"),)
    assert references.snapshot_needed_by(model, "other") is None
    assert "snapshot 's' is needed by region #11 of copy" in str(references.snapshot_needed_by(model, "s"))


@pytest.mark.parametrize("state", T)
def test_a_table_is_cloned_at_rest_and_a_snapshot_is_made_of_one_that_serves(state: TableState) -> None:
    model = Regions()
    table = a_table(model, state=state)
    assert (references.source_problem(model, table) is None) is (state is T.DISABLED)
    assert (references.snapshot_problem(model, "s", table) is None) is (state is T.ENABLED)


def test_data_that_depends_on_others_is_neither_cloned_nor_kept() -> None:
    model = Regions()
    table = a_table(model, regions=2)
    model.sources[2] = (a_source(7), a_source(8))
    expected = "region t#2 is not yet independent, #2 not of #7, #8: wait until"
    assert (references.snapshot_problem(model, "s", table) or "").startswith(expected)
    table.state = T.DISABLED
    assert (references.source_problem(model, table) or "").startswith(expected)


def test_a_table_is_not_cloned_while_edits_may_wait_beside_its_data() -> None:
    """A region that was never open has none; of one that was, its owner says that it has closed it, or none does."""
    model = Regions()
    table = a_table(model, state=T.DISABLED, regions=2)
    table.regions[0].token, table.regions[0].clean = 5, True
    assert references.source_problem(model, table) is None
    table.regions[1].token = 7
    why = references.source_problem(model, table) or ""
    assert why.startswith("region t#2 was not closed by its server, so edits may wait")
    assert why.endswith("enable table 't', and disable it again")


def test_snapshots_have_bounds() -> None:
    model = Regions()
    table = a_table(model)
    row = SnapshotRow("s", "t", 2, (), 1, references.LISTED_MAX, 1)
    model.snapshots["s"] = Snapshot(row, ((a_source(1),), (a_source(2),)))
    assert "exists already, of table 't'" in (references.snapshot_problem(model, "s", table) or "")
    assert "list 1,000,000 regions" in (references.snapshot_problem(model, "more", table) or "")
    assert [one.region for one in references.of_snapshot(model.snapshots["s"], 1)] == [2]
    assert {one.snapshot for one in references.of_snapshot(model.snapshots["s"])} == {"s"}


@pytest.mark.parametrize(
    ("identity", "sequences"),
    [("s 40-1796055305734", [7, 7, 0]), ("s", [7, 7, 7]), ("s x-1", [7, 7, 7])],
    ids=["with an id", "of an earlier release", "of a later one"],
)
def test_a_copy_may_be_older_than_the_open_that_a_snapshot_lists(identity: str, sequences: list[int]) -> None:
    """Its region has moved since: a server that has a copy by an earlier owner is not to look for later edits in it."""
    first, *others = (a_source(one)._replace(token=token, sequence=7) for one, token in ((1, 39), (2, 40), (3, 41)))
    row = SnapshotRow("s", "t", 2, (), 1, 3, 2)
    snapshot = identity if identity != "s" else ""
    found = list(
        map(
            references.bounded,
            references.of_snapshot(Snapshot(row, ((first._replace(snapshot=snapshot),), tuple(others)))),
        )
    )
    assert [one.sequence for one in found] == sequences
    assert {one.snapshot for one in found} == {identity}
