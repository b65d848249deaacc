"""A report of regions: each finding, none in a catalog that is in order, and keys that change between two parts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions import report
from state_machines.regions.changes import PROCESS_MEND
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.findings import Finding, FindingKind, Findings, Held, Scope, row_mend
from state_machines.regions.holes import hole_mend, rows_mend
from state_machines.regions.model import Regions
from state_machines.regions.report import Judge
from state_machines.regions.reshaping import reshape
from state_machines.regions.shapes import ParentRow, Snapshot, SnapshotRow, Source
from state_machines.regions.states import PARTIAL, RegionState, ServerState, TableKind, TableState

K = FindingKind
S = RegionState
T = TableState
KEYS = (b"", b"b", b"d", b"f", b"h", b"")


def a_model(*names: str) -> Regions:
    """Tables whose regions one server has."""
    model = Regions()
    model.namespaces.add("default")
    server = Server("a", 1, "a:1", "", ServerState.ONLINE, {}, here=True)
    model.servers[server.key] = server
    for name in names or ("t",):
        table = Table(name, TableKind.USER, T.ENABLED, {}, [])
        model.add_table(table)
        first = len(model.regions) + 1
        model.add_regions(table, [
            Region(first + at, table, KEYS[at], KEYS[at + 1], S.OPEN, server, 7) for at in range(len(KEYS) - 1)
        ])  # fmt: skip
        server.regions |= {one.id: one for one in table.regions}
    return model


def goes_on(*pids: int, **about: Any) -> Held:
    return Held(pids.__contains__, {}, {})._replace(**about)


def judged(model: Regions, held: Held | None = None, scope: Scope | None = None) -> Findings:
    judge = Judge(model, scope or Scope())
    for _ in judge.of_keys():
        pass
    for _ in judge.of_rest(held or goes_on()):
        pass
    return judge.found


def the_one(model: Regions, held: Held | None = None, scope: Scope | None = None) -> Finding:
    found = judged(model, held, scope)
    [finding] = found.listed
    assert found.counts == {finding.kind: 1}
    return finding


def without(model: Regions, id_: int) -> Region:
    """Takes a region away, as if its row had been deleted."""
    region = model.regions.pop(id_)
    region.table.regions.remove(region)
    region.table.counts[region.state] -= 1
    if region.server is not None:
        del region.server.regions[id_]
    return region


# -- keys


def test_a_catalog_in_order_has_no_finding() -> None:
    found = judged(a_model("t", "u"))
    assert (found.counts, found.listed, found.tables, found.regions, found.in_work) == ({}, [], 2, 10, 0)


@pytest.mark.parametrize(
    ("gone", "start", "end", "beside"),
    [
        ((1,), b"", b"b", (2,)),
        ((3,), b"d", b"f", (2, 4)),
        ((5,), b"h", b"", (4,)),
        ((2, 3), b"b", b"f", (1, 4)),
        ((1, 2, 3, 4, 5), b"", b"", ()),
    ],
)
def test_keys_that_no_region_has_are_a_hole(
    gone: tuple[int, ...], start: bytes, end: bytes, beside: tuple[int, ...]
) -> None:
    model = a_model()
    for id_ in gone:
        without(model, id_)
    found = the_one(model)
    assert (found.kind, found.table, found.start, found.end, found.regions) == (K.HOLE, "t", start, end, beside)
    assert found.mend == hole_mend("t", {})
    assert "no region has the keys from " in found.what


def test_a_hole_has_the_mend_of_a_process_that_its_row_does_not_name() -> None:
    model = a_model()
    without(model, 3)
    model.damages.add(Damage(RowKind.SERVER, "server", "incarnation", "zzz", "a test", "a,zzz"))
    assert judged(model).listed[0].mend == PROCESS_MEND, "else the command that it names would be refused"


def test_a_hole_names_the_damaged_row_that_may_have_its_keys() -> None:
    model = a_model()
    without(model, 3)
    model.damages.add(Damage(RowKind.REGION, "region 3", "state", "99", "a test", table="t", region=3))
    hole, damaged = judged(model).listed
    assert "(region 3: state is 99: a test)" in hole.what
    assert hole.mend == rows_mend("t", model.damages.rows), "the row that is left out has the keys"
    assert "'regent regions adopt 3 --table t'" in hole.mend
    assert (damaged.kind, damaged.table, damaged.regions, damaged.mend) == (K.DAMAGED, "t", (3,), row_mend(3, "t"))


@pytest.mark.parametrize(
    ("id_", "start", "end", "shared"),
    [(2, b"b", b"e", (b"d", b"e")), (4, b"e", b"h", (b"e", b"f")), (5, b"b", b"", (b"d", b"f"))],
)
def test_keys_that_two_regions_have_are_an_overlap(
    id_: int, start: bytes, end: bytes, shared: tuple[bytes, bytes]
) -> None:
    model = a_model()
    model.regions[id_].start, model.regions[id_].end = start, end
    model.tables["t"].regions.sort(key=lambda one: one.start)
    found = judged(model, scope=Scope(kind=K.OVERLAP))
    assert set(found.counts) == {K.OVERLAP}
    assert any((one.start, one.end) == shared or id_ in one.regions for one in found.listed)
    assert all("have the same keys" in one.what and "'regent regions forget" in one.mend for one in found.listed)


def test_a_disabled_table_that_was_not_created_whole_may_be_deleted() -> None:
    model = a_model()
    model.tables["t"].state = T.DISABLED
    without(model, 5)
    assert the_one(model).mend.startswith("where its creation was ended, 'regent tables delete t'; else stop the")


@pytest.mark.parametrize("state", sorted(PARTIAL))
def test_a_table_that_has_only_some_of_its_regions_for_now_has_no_hole(state: TableState) -> None:
    model = a_model()
    model.tables["t"].state = state
    without(model, 3)
    assert not judged(model).counts


# -- owners


@pytest.mark.seed("S1-96")
@pytest.mark.parametrize("state", [one for one in S if one is not S.OPEN])
def test_a_region_without_an_owner_is_found_unless_something_goes_on_with_it(state: RegionState) -> None:
    model = a_model()
    region = model.regions[2]
    model._leave(region)
    region.state = state
    found = the_one(model)
    assert (found.kind, found.regions, found.pid) == (K.NOT_OPEN, (2,), 0)
    assert "'regent regions assign 2' opens it" in found.mend
    assert ("no server could open it" in found.what) is (state is S.FAILED_OPEN)
    for held in (goes_on(9, regions={2: 9}), goes_on(soon={2})):
        again = judged(model, held)
        assert (again.counts, again.in_work) == ({}, 1), "it is not lost: a procedure waits for it, or begins"
    region.pid = 9
    again = judged(model, goes_on(9))
    assert (again.counts, again.in_work) == ({}, 1)
    parked = the_one(model, goes_on())
    assert parked.pid == 9
    assert "procedure 9, which has it, is not run" in parked.what
    assert "'regent regions procedures bypass 9' ends that, and then 'regent regions assign 2'" in parked.mend


@pytest.mark.parametrize("state", [one for one in T if one is not T.ENABLED])
def test_a_region_that_is_not_to_be_open_is_no_finding(state: TableState) -> None:
    model = a_model()
    model.tables["t"].state = state
    for region in model.tables["t"].regions:
        model._leave(region)
        region.state = S.CLOSED
    assert not judged(model).counts


@pytest.mark.parametrize("state", [ServerState.CRASHED, ServerState.FENCED])
def test_regions_of_a_crashed_server_are_found_unless_its_crash_goes_on(state: ServerState) -> None:
    model = a_model()
    model.servers["a", 1].state = state
    found = judged(model)
    assert found.counts == {K.UNKNOWN_SERVER: 5}
    assert found.listed[0].server == "a,1"
    assert "no procedure deals with that" in found.listed[0].what
    for held in (goes_on(9, servers={("a", 1): 9}), goes_on(crashing={("a", 1)})):
        again = judged(model, held)
        assert (again.counts, again.in_work) == ({}, 5)
    parked = judged(model, goes_on(servers={("a", 1): 9}, crashing={("a", 1)})).listed[0]
    assert (parked.pid, "'regent regions procedures bypass 9' has the crash begin anew" in parked.mend) == (9, True)


def test_a_region_whose_owner_is_not_known_is_found() -> None:
    model = a_model()
    del model.servers["a", 1]
    found = judged(model)
    assert found.counts == {K.UNKNOWN_SERVER: 5}
    assert "its owner a,1 is no member any more" in found.listed[0].what
    assert "restart the daemon" in found.listed[0].mend


@pytest.mark.parametrize(
    ("state", "by_itself"), [(S.ABNORMALLY_CLOSED, True), (S.OFFLINE, True), (S.CLOSED, False), (S.FAILED_OPEN, False)]
)
def test_in_a_store_without_a_daemon_the_mend_begins_with_its_start(state: RegionState, by_itself: bool) -> None:
    model = a_model()
    model._leave(model.regions[2])
    model.regions[2].state = state
    scope = Scope(serving=False)
    found = the_one(model, scope=scope)
    assert "start the daemon" in found.mend
    assert ("it opens it by itself" in found.mend) is by_itself
    lost = the_one(model, scope=scope._replace(owners={2: "b,3"}))
    assert (lost.kind, lost.server, "b,3 is no process that the store knows" in lost.what) == (
        K.UNKNOWN_SERVER, "b,3", True,
    )  # fmt: skip


def test_a_region_that_another_process_lists_is_claimed_twice() -> None:
    model = a_model()
    found = the_one(model, goes_on(claims=[(2, [("b", 1)]), (999, [("b", 1)])]))
    assert (found.kind, found.regions, found.server) == (K.CLAIMED_TWICE, (2,), "b,1")
    assert "a,1 has it, and b,1 lists it" in found.what
    assert "'regent servers expire b'" in found.mend
    model.tables["t"].state = T.DISABLED
    model._leave(model.regions[2])
    model.regions[2].state = S.CLOSED
    assert not judged(model, goes_on(claims=[(2, [("b", 1)])])).counts, "a stray, which is closed"
    several = the_one(model, goes_on(claims=[(2, [(name, 1) for name in "edcb"])]))
    assert "it has no owner, and b,1, c,1, d,1 and 1 more list it" in several.what


# -- rows beside the regions


def a_parent(id_: int, start: bytes, end: bytes, *heirs: int, table: str = "t") -> ParentRow:
    return ParentRow(id_, table, start, end, S.SPLIT, heirs, 5, 1)


@pytest.mark.parametrize(("gone", "found"), [((), []), ((2,), [20]), ((3,), [20]), ((4,), []), ((2, 3), [20])])
def test_a_parent_whose_heirs_are_gone_is_found_with_the_hole(gone: tuple[int, ...], found: list[int]) -> None:
    model = a_model()
    model.parents[20] = a_parent(20, b"b", b"f", 2, 3)
    for id_ in gone:
        without(model, id_)
    listed = judged(model).listed
    assert [id_ for one in listed if one.kind is K.NO_HEIRS for id_ in one.regions] == found
    assert any(one.kind is K.HOLE for one in listed) is bool(gone)


def test_a_parent_whose_heirs_were_split_and_discarded_is_in_order() -> None:
    model = a_model()
    model.parents[20] = a_parent(20, b"", b"", 21, 22)
    assert not judged(model).counts
    model.parents[23] = a_parent(23, b"", b"", 24, table="none")
    found = the_one(model)
    assert (found.kind, "table 'none'" in found.what or "its table is not there" in found.what) == (K.NO_HEIRS, True)


def test_a_parent_whose_heir_is_left_out_is_told_by_the_damaged_row_alone() -> None:
    model = a_model()
    model.parents[20] = a_parent(20, b"b", b"f", 2, 3)
    without(model, 3)
    model.damages.add(Damage(RowKind.REGION, "region 3", "state", "99", "a test", table="t", region=3))
    assert judged(model).counts == {K.HOLE: 1, K.DAMAGED: 1}


def test_what_a_region_refers_to_has_to_be_there() -> None:
    model = a_model("t", "u")
    of_table, of_parent, gone = Source(7, b"", b"", 1, 1), Source(20, b"", b"", 1, 1), Source(30, b"", b"", 1, 1)
    model.parents[20] = a_parent(20, b"", b"d", 1, 2)
    model.sources |= {1: (of_table,), 2: (of_parent,)}
    assert not judged(model).counts
    model.sources[3] = (of_table, gone)
    found = the_one(model)
    assert (found.kind, found.regions, "as that of #30, of which no row tells" in found.what) == (
        K.NO_PARENT, (3,), True,
    )  # fmt: skip
    model.damages.add(Damage(RowKind.PARENT, "row 30", "token", "-1", "a test", "#30", region=30))
    assert the_one(model).kind is K.DAMAGED, "its row is there, and cannot be used"


def test_a_snapshot_that_a_region_refers_to_has_to_be_there() -> None:
    model = a_model()
    model.sources[3] = (Source(99, b"", b"", 1, 1, "s"),)
    assert "as that of snapshot s, of which no row tells" in the_one(model).what
    for part, identity in (((), "s"), ((Source(9, b"", b"", 1, 1, "s 5"),), "s 5")):
        model.snapshots["s"] = Snapshot(SnapshotRow("s", "t", 2, (), 1, 1, 1), (part,))
        model.sources[3] = (Source(99, b"", b"", 1, 1, identity),)
        assert not judged(model).counts
        model.sources[3] = (Source(99, b"", b"", 1, 1, "s 4"),)
        assert "as that of snapshot s 4, of which no row tells" in the_one(model).what, "one of the same name"
    del model.snapshots["s"]
    model.damages.add(Damage(RowKind.SNAPSHOT_PART, "row 1", "regions", "", "a test", "0 of s"))
    found = the_one(model)
    assert (found.kind, found.mend) == (K.DAMAGED, "'regent snapshots delete s' removes what is left of it")


def test_a_row_about_the_data_of_a_region_that_is_not_there_is_found() -> None:
    model = a_model("t", "u")
    model.sources[77] = (Source(7, b"", b"", 1, 1),)
    assert (the_one(model).kind, the_one(model).regions) == (K.NO_REGION, (77,))
    assert not judged(model, scope=Scope("t")).counts, "whose it is cannot be known"


@pytest.mark.parametrize("state", [one for one in T if one not in (T.ENABLED, T.DISABLED)])
def test_a_table_that_no_procedure_takes_on_is_found_with_the_command(state: TableState) -> None:
    model = a_model()
    model.tables["t"].state = state
    found = the_one(model, goes_on(halted=["t", "gone"]))
    assert (found.kind, found.table, state.name in found.what) == (K.HALTED, "t", True)
    assert "'regent tables " in found.mend
    model.tables["t"].state = T.ENABLED
    assert not judged(model, goes_on(halted=["t"])).counts, "a procedure took it on meanwhile"


def test_a_table_whose_namespace_has_no_row_is_found() -> None:
    model = a_model("n:t", "u")
    found = the_one(model)
    assert (found.kind, found.table, found.mend) == (K.NO_NAMESPACE, "n:t", "'regent namespaces create n' stores it")
    model.damages.add(Damage(RowKind.NAMESPACE, "row 1", "name", "", "it is no text"))
    assert the_one(model).kind is K.DAMAGED, "that row may be it"
    model.namespaces.add("n")
    assert the_one(model).kind is K.DAMAGED


# -- scopes and bounds


def test_a_scope_leaves_other_tables_and_kinds_out() -> None:
    model = a_model("t", "u")
    without(model, 2)
    without(model, 7)
    model._leave(model.regions[3])
    model.regions[3].state = S.CLOSED
    model.damages.add(Damage(RowKind.TABLE, "row 9", "kind", "", "a test", "v"))
    assert judged(model).counts == {K.HOLE: 2, K.NOT_OPEN: 1, K.DAMAGED: 1}
    assert judged(model, scope=Scope("u")).counts == {K.HOLE: 1}
    assert judged(model, scope=Scope("v")).counts == {K.DAMAGED: 1}
    assert judged(model, scope=Scope(kind=K.NOT_OPEN)).counts == {K.NOT_OPEN: 1}


def test_findings_that_are_too_many_are_counted() -> None:
    model = a_model()
    for region in model.tables["t"].regions:
        region.state = S.FAILED_OPEN
    found = judged(model, scope=Scope(listed_max=2))
    assert ([one.regions for one in found.listed], found.counts) == ([(1,), (2,)], {K.NOT_OPEN: 5})


def test_rows_that_are_too_many_to_be_described_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state_machines.regions.damage.DAMAGES_MAX", 1)
    model = a_model()
    for number in range(1, 4):
        model.damages.add(Damage(RowKind.MARK, f"row {number}", "kind", "", "a test", "hold of a"))
    model.damages.leave_out(77, "v")
    found = judged(model)
    assert (len(found.listed), found.counts) == (1, {K.DAMAGED: 3}), "sound regions of a damaged table are not damaged"


# -- parts


@pytest.mark.parametrize("seed", range(20))
def test_keys_that_change_hands_between_two_parts_are_no_finding(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TOGETHER", 2)
    draw, model = Random(seed), a_model()
    table, server = model.tables["t"], model.servers["a", 1]
    judge = Judge(model, Scope())
    parts = 0
    for _ in judge.of_keys():
        parts += 1
        for _ in range(draw.randrange(4)):
            _reshaped(draw, model, table, server)
    for _ in judge.of_rest(goes_on()):
        pass
    assert (judge.found.counts, parts > 1) == ({}, True)


def _reshaped(draw: Random, model: Regions, table: Table, server: Server) -> None:
    """Splits a region, or merges two."""
    at = draw.randrange(len(table.regions))
    count = draw.choice((1, 2)) if at + 2 <= len(table.regions) else 1
    gone = table.regions[at : at + count]
    id_ = max(*model.regions, *model.parents, 100) + 1
    keys = [(gone[0].start, gone[-1].end)]
    if count == 1 and len(table.regions) < 12:
        middle = gone[0].start + b"5"
        keys = [(gone[0].start, middle), (middle, gone[0].end)]
    heirs = [Region(id_ + n, table, start, end, S.OPEN, server) for n, (start, end) in enumerate(keys)]
    for one in gone:
        one.state = S.CLOSED
    rows = [a_parent(one.id, one.start, one.end, *(heir.id for heir in heirs)) for one in gone]
    reshape(model, rows, heirs, {}, 1)


def test_a_table_that_goes_between_two_parts_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "TOGETHER", 2)
    for end in ("dropped", "emptied"):
        model = a_model("t", "u")
        judge = Judge(model, Scope())
        parts = judge.of_keys()
        next(parts)
        if end == "dropped":
            model.drop_table("t")
        else:
            model.tables["t"].state = T.DELETING
            model.drop_last(model.tables["t"], 5)
        for _ in parts:
            pass
        for _ in judge.of_rest(goes_on()):
            pass
        assert not judge.found.counts


# -- any catalog


@st.composite
def catalogs(draw: st.DrawFn) -> Regions:
    """Draws a catalog in order: keys, states, procedures and what splits have left behind."""
    model = a_model()
    model.drop_table("t")
    server = model.servers["a", 1]
    for name in draw(st.lists(st.sampled_from("tuvw"), min_size=1, unique=True)):
        state = draw(st.sampled_from([T.ENABLED, T.ENABLED, T.DISABLED, T.ENABLING, T.TRUNCATING]))
        table = Table(name, TableKind.USER, state, {}, [])
        model.add_table(table)
        splits = sorted(draw(st.sets(st.binary(min_size=1, max_size=3), max_size=6)))
        for start, end in zip((b"", *splits), (*splits, b""), strict=True):
            region = Region(len(model.regions) + 1, table, start, end, S.OPEN, server)
            if draw(st.booleans()) or state is not T.ENABLED:
                region.server, region.state = None, draw(st.sampled_from([S.CLOSED, S.OFFLINE, S.FAILED_OPEN]))
                region.pid = 9 if state is T.ENABLED else 0
            model.add_regions(table, [region])
        for region in table.regions:
            if draw(st.booleans()):
                id_ = 1_000 + region.id
                model.parents[id_] = a_parent(id_, region.start, region.end, region.id, 9_999, table=name)
                model.sources[region.id] = (Source(id_, region.start, region.end, 5, 1),)
    return model


def _of_whole(model: Regions) -> list[Region]:
    return [one for one in model.regions.values() if one.table.state not in PARTIAL]


def _hole(model: Regions, region: Region) -> int:
    model.sources.pop(region.id, None)
    region.table.regions.remove(region)
    del model.regions[region.id]
    return region.id


def _overlap(model: Regions, region: Region) -> int:
    other = Region(5_000, region.table, region.start, region.end, region.state, region.server, pid=region.pid)
    model.add_regions(region.table, [other])
    region.table.regions.sort(key=lambda one: one.start)
    return region.id


def _not_open(model: Regions, region: Region) -> int:
    region.table.state, region.server, region.state, region.pid = T.ENABLED, None, S.CLOSED, 0
    return region.id


def _stranger(model: Regions, region: Region) -> int:
    region.server, region.state, region.pid = Server("z", 1, "", "", ServerState.ONLINE, {}), S.OPEN, 0
    return region.id


def _no_parent(model: Regions, region: Region) -> int:
    model.sources[region.id] = (Source(8_888, region.start, region.end, 5, 1),)
    return region.id


DAMAGES: dict[FindingKind, Callable[[Regions, Region], int]] = {
    K.HOLE: _hole,
    K.OVERLAP: _overlap,
    K.NOT_OPEN: _not_open,
    K.UNKNOWN_SERVER: _stranger,
    K.NO_PARENT: _no_parent,
}


@given(model=catalogs(), data=st.data())
def test_one_damage_of_any_catalog_is_found_and_none_where_it_is_in_order(model: Regions, data: st.DataObject) -> None:
    held = goes_on(9)
    found = judged(model, held)
    assert not found.listed
    assert found.regions == len(_of_whole(model))
    if not _of_whole(model):
        return
    region = data.draw(st.sampled_from(_of_whole(model)))
    kind = data.draw(st.sampled_from(sorted(DAMAGES)))
    id_ = DAMAGES[kind](model, region)
    listed = judged(model, held).listed
    assert any(one.kind is kind for one in listed), (kind, id_, listed)
    assert all(one.table == region.table.name for one in listed), "of its table alone"
