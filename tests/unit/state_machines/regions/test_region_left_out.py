"""Rows of regions that are left out: which holes name them, and which keys they keep from being given away."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from state_machines.regions.adopted_keys import adopted_keys, told_of
from state_machines.regions.damage import NO_TABLE, Damage, Gap, RowKind
from state_machines.regions.entities import Region, Table
from state_machines.regions.findings import Finding, FindingKind, Refusal, Scope
from state_machines.regions.left_out import VAGUE_MAX, LeftOut, in_the_way, may_be_within, may_share
from state_machines.regions.model import Regions
from state_machines.regions.report import Judge
from state_machines.regions.states import RegionState, TableKind, TableState

KEYS = [b"", b"b", b"d", b"f", b"h", b""]
UNREAD = None, None


def a_model(*gone: int, tables: tuple[str, ...] = ("t",)) -> Regions:
    """Tables of five regions, of which those at some places are gone from each."""
    model = Regions()
    for name in tables:
        table = Table(name, TableKind.USER, TableState.ENABLED, {}, [])
        model.add_table(table)
        kept = [at for at in range(len(KEYS) - 1) if at not in gone]
        first = 10 * len(model.tables)
        rows = [Region(first + at, table, KEYS[at], KEYS[at + 1], RegionState.CLOSED) for at in kept]
        model.add_regions(table, rows)
        for at in gone:
            model.damages.add_gap(Gap(name, KEYS[at], KEYS[at + 1], False, ()))
    return model


def row(id_: int, keys: tuple[bytes | None, bytes | None], table: str = "t", owner: str = "") -> Damage:
    return Damage(RowKind.REGION, f"region {id_}", "state", "99", "a test", owner, table, id_, *keys)


def holes(model: Regions, table: str = "") -> list[Finding]:
    judge = Judge(model, Scope(table, FindingKind.HOLE))
    for _ in judge.of_keys():
        pass
    return judge.found.listed


def test_each_hole_names_the_row_whose_keys_it_has() -> None:
    model = a_model(0, 2, 4)
    for one in (row(14, (b"h", b"")), row(12, (b"d", b"f"), owner="s1,5"), row(10, (b"", b"b"))):
        model.damages.add(one)
    first, second, third = holes(model)
    for hole, id_ in ((first, 10), (second, 12), (third, 14)):
        assert f"(region {id_}: state is 99: a test)" in hole.what
        assert not any(f"{other}" in hole.what + hole.mend for other in {10, 12, 14} - {id_})
    assert second.mend == "'regent servers recover s1,5', then restart the daemon, which has region 12 again"
    assert "'regent regions adopt 14 --table t' stores region 14 again" in third.mend


def test_a_row_that_tells_no_table_is_named_where_just_its_keys_are_missing() -> None:
    model = a_model(2, tables=("t", "u"))
    without = Table("v", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(without)
    model.damages.add(row(12, (b"d", b"f"), table=""))
    model.damages.add(row(22, (b"d", b"f"), table="u"))
    of_t, of_u, of_v = holes(model)
    assert "regions adopt 12 --table t' stores region 12 again, where it was one of table t" in of_t.mend
    assert ("adopt 22 --table u" in of_u.mend, "12" in of_u.what + of_u.mend) == (True, False)
    assert "12" not in of_v.what + of_v.mend
    assert "each row is mended that does not tell its table" in of_v.mend


def test_a_row_whose_keys_a_hole_has_not_wholly_is_stored_with_these_alone() -> None:
    model = a_model(2)
    model.damages.add(row(9, (b"b", b"d")))
    assert "9" not in holes(model)[0].mend, "others have its keys"
    model.damages.add(row(12, (b"d", b"h")))
    [hole] = holes(model)
    assert "'regent regions adopt 12 --table t --start d --end f' stores it with these of its keys alone" in hole.mend


def test_rows_whose_keys_cannot_be_read_are_named_where_no_others_have_all_keys() -> None:
    model = a_model(1, 2)
    model.damages.add(row(9, UNREAD))
    model.damages.add(row(11, (b"b", b"d")))
    [hole] = holes(model)
    assert ("adopt 9 --table t" in hole.mend, "adopt 11 --table t" in hole.mend) == (True, True)
    model.damages.add(row(12, (b"d", b"f")))
    [hole] = holes(model)
    assert ("adopt 9 " in hole.mend, "adopt 12 --table t" in hole.mend) == (False, True)
    model.damages.add(row(8, (None, b"b")))
    model.damages.drop_region(11)
    assert "adopt 8 " not in holes(model)[0].mend, "its end is not in the hole"


def test_a_row_without_an_id_is_removed_before_its_region_is_stored() -> None:
    model = a_model(2)
    model.damages.add(row(0, (b"d", b"f"))._replace(place="row 3 of table region"))
    [hole] = holes(model)
    assert "'regent regions remove-row \"row 3 of table region\"' removes a row without an id" in hole.mend


def test_a_table_without_regions_may_be_another_one_under_a_wrong_name() -> None:
    model = a_model(tables=("t", "u"))
    model.add_table(Table("userz", TableKind.USER, TableState.ENABLED, {}, []))
    assert "tables adopt" not in holes(model)[0].mend
    for id_, keys in ((30, (b"", b"b")), (31, (b"b", b""))):
        model.damages.add(Damage(RowKind.REGION, "a place", "table", "'users'", NO_TABLE, "", "users", id_, *keys))
    [hole] = holes(model)
    way = [hole.mend.find(f"'regent tables {one}'") for one in ("adopt users", "disable userz", "delete userz")]
    assert 0 < way[0] < way[1] < way[2]


def test_a_region_gets_the_keys_of_its_row_unless_others_are_given() -> None:
    model = a_model(0, 2)
    gaps = [(b"", b"b"), (b"d", b"f")]
    model.damages.add(row(12, (b"d", b"f")))
    assert adopted_keys(model, 12, "t", gaps, None, None) == (b"d", b"f")
    assert told_of(model, 12, "t", (b"d", b"f")) == ""
    assert adopted_keys(model, 12, "t", gaps, b"", b"b") == (b"", b"b")
    assert "its row had other keys, from d to f" in told_of(model, 12, "t", (b"", b"b"))
    model.damages.add(row(13, (b"f", b"h")))
    for given_ in (UNREAD, (b"", None)):
        refusal = adopted_keys(model, 13, "t", gaps, *given_)
        assert isinstance(refusal, Refusal)
        assert "region 13 had the keys from f to h by its row" in refusal.what
        assert "--start and --end, within those that no region has: from the first key to b; from d to f" in str(
            refusal
        )
    assert adopted_keys(model, 13, "t", gaps, b"", b"b") == (b"", b"b")
    model.damages.add(row(14, (b"d", None)))
    assert adopted_keys(model, 14, "t", gaps, None, None) == (b"d", b"f")


def test_a_row_that_tells_no_table_is_stored_where_just_its_keys_are_missing_unless_keys_are_given() -> None:
    model = a_model(2, tables=("t", "u"))
    model.damages.add(row(12, (b"d", b"f"), table=""))
    assert adopted_keys(model, 12, "t", [(b"d", b"f")], None, None) == (b"d", b"f")
    refusal = adopted_keys(model, 12, "v", [(b"", b"")], None, None)
    assert isinstance(refusal, Refusal)
    assert refusal.remedy.startswith("'regent regions adopt 12 --table t' stores it there; ")
    assert adopted_keys(model, 12, "v", [(b"", b"")], b"d", b"f") == (b"d", b"f")
    assert isinstance(adopted_keys(model, 12, "v", [(b"e", b"")], b"e", b"f"), Refusal)


Told = tuple[bytes | None, bytes | None]
"""Keys that a row tells, as far as they can be read."""
TOLD: list[Told] = [
    (one, other) for one in (None, *KEYS) for other in (None, *KEYS) if one is None or not other or one < other
]
bounds = st.sampled_from(TOLD)
ranges = st.sampled_from([(one, other) for one in KEYS[:-1] for other in KEYS[1:] if not other or one < other])
POINTS = [b"", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"]


def has(start: bytes | None, end: bytes | None) -> set[bytes]:
    return {one for one in POINTS if (start or b"") <= one and (not end or one < end)}


@given(bounds, ranges)
def test_what_a_row_may_have_is_what_some_keys_for_its_unread_bounds_allow(
    told: Told, keys: tuple[bytes, bytes]
) -> None:
    """The naive way puts each key in place of a bound that cannot be read."""
    starts = KEYS[:-1] if told[0] is None else [told[0]]
    ends = POINTS if told[1] is None else [told[1]]
    could = [has(one, other) for one in starts for other in ends if not other or one < other]
    one = row(1, told)
    assert may_share(one, keys) is any(some & has(*keys) for some in could)
    assert may_be_within(one, keys) is any(some <= has(*keys) for some in could)


@given(st.lists(bounds, max_size=5), ranges)
def test_a_row_is_in_the_way_of_the_keys_that_it_may_have(told: list[Told], keys: tuple[bytes, bytes]) -> None:
    model = a_model(2)
    for id_, one in enumerate(told, 1):
        model.damages.add(row(id_, one))
    table = model.tables["t"]
    mine = [one for one in model.damages.rows if may_share(one, keys)]
    assert in_the_way(model, table, [keys]) == (str(mine[0]) if mine else "")
    assert in_the_way(model, table, [keys], but=1) == next((str(one) for one in mine if one.region != 1), "")
    named = LeftOut(model, "t").of(keys)
    assert all(may_be_within(one, keys) for one in named)
    apart = [one for one in model.damages.rows if None in (one.start, one.end) and may_be_within(one, keys)]
    assert named or not apart, "one that tells a bound in the hole is found"
    if not any(None not in (one.start, one.end) for one in named):
        assert len(named) == min(len(apart), VAGUE_MAX)
