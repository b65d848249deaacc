"""Rules of repairs: keys of a table without one of its regions, damage that is gone, keys that are chosen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.regions.operator.table_changes import keys_remedy
from state_machines.regions.adopted_keys import chosen_keys, is_within, known_keys
from state_machines.regions.changes import PROCESS_MEND, keys_problem
from state_machines.regions.damage import Damage, Damages, Gap, RowKind
from state_machines.regions.entities import Region, Table
from state_machines.regions.findings import Refusal
from state_machines.regions.heirs import apart_problem, key_problem
from state_machines.regions.keys import Without
from state_machines.regions.model import Regions
from state_machines.regions.references import keys_lost
from state_machines.regions.repairs import adoption_problem
from state_machines.regions.shapes import Source
from state_machines.regions.states import RegionState, TableKind, TableState

BOUNDS = [bytes([one]) for one in b"abcdefgh"]


def table_of(ranges: list[tuple[bytes, bytes]], state: TableState = TableState.ENABLED) -> tuple[Regions, Table]:
    model, table = Regions(), Table("t", TableKind.USER, state, {}, [])
    model.add_table(table)
    made = [Region(at, table, start, end, RegionState.CLOSED) for at, (start, end) in enumerate(ranges, 1)]
    model.add_regions(table, sorted(made, key=lambda one: one.start))
    return model, table


keys = st.tuples(st.sampled_from([b"", *BOUNDS]), st.sampled_from([b"", *BOUNDS])).filter(
    lambda one: not one[1] or one[0] < one[1]
)


def has(one: Region, key: bytes) -> bool:
    return one.start <= key and (not one.end or key < one.end)


@given(st.lists(keys, min_size=1, max_size=6), st.sampled_from([TableState.ENABLED, TableState.DISABLED]))
def test_a_table_is_followed_as_if_a_region_was_not_there(ranges: list[tuple[bytes, bytes]], state: TableState) -> None:
    """The naive way looks at each key by itself."""
    _, table = table_of(ranges, state)
    for region in table.regions:
        others = [one for one in table.regions if one is not region]
        found = Without(table, region)
        for _ in found.parts():
            pass
        alone = [key for key in (b"", *BOUNDS) if has(region, key) and not any(has(one, key) for one in others)]
        assert (found.missing is not None) is bool(alone)
        if found.missing is not None:
            assert found.missing.has(alone[0])
        for key in (b"", *BOUNDS):
            owners = sum(has(one, key) for one in others)
            gaps = [one for one in found.gaps if one.has(key)]
            ended = state is TableState.DISABLED and others and not any(has(one, key) for one in others)
            assert bool(gaps) is (owners != 1) or (ended and not gaps)


def test_the_damage_of_a_region_goes_with_all_that_it_said_of_its_table() -> None:
    damages = Damages()
    one = Damage(RowKind.REGION, "region 1", "state", "99", "a test", table="t", region=1)
    other = one._replace(place="region 2", region=2)
    for damage in (one, other, Damage(RowKind.PARENT, "row 1 of table parent", "state", "", "a test", "#1", region=1)):
        damages.add(damage)
    assert str(other) in damages.of_rows("t", but=1)
    damages.drop_region(1)
    assert (damages.of_table("t"), damages.regions, dict(damages.count)) == (str(other), {2}, {RowKind.REGION: 1})
    assert damages.of_rows("t", but=2) == ""
    damages.leave_out(3, "t")
    assert damages.of_rows("t", but=2) == "the row of table t is damaged"
    damages.drop_region(2)
    assert (damages.of_table("t"), damages.rows) == ("the row of table t is damaged", [])


def test_damage_that_is_counted_alone_may_be_of_any_table() -> None:
    damages = Damages()
    damages.add(Damage(RowKind.REGION, "region 1", "state", "99", "a test", table="t", region=1))
    damages.count[RowKind.REGION] += 1
    assert damages.of_rows("t", but=1)
    damages.drop_region(1)
    assert damages.of_table("t")


def test_keys_that_get_a_region_leave_the_rest_of_their_hole() -> None:
    damages = Damages()
    damages.add_gap(Gap("t", b"b", b"", False, (1,)))
    damages.drop_keys("t", b"c", b"d", 7)
    assert damages.gaps == [Gap("t", b"b", b"c", False, (7,)), Gap("t", b"d", b"", False, (7,))]
    damages.drop_keys("t", b"b", b"c", 8)
    damages.drop_keys("t", b"d", b"", 9)
    assert damages.gaps == []


def test_the_keys_of_an_adopted_region_are_a_hole_or_a_part_of_one() -> None:
    holes = [(b"b", b"d"), (b"f", b"")]
    assert chosen_keys(holes[:1], None, None, "t") == holes[0]
    assert chosen_keys(holes, b"g", None, "t") == (b"g", b"")
    assert chosen_keys(holes, None, b"c", "t") == (b"b", b"c")
    assert chosen_keys(holes, b"f", b"", "t") == holes[1]
    for start, end in ((None, None), (b"a", None), (b"c", b"e"), (b"c", b""), (b"c", b"c"), (b"d", b"e")):
        assert isinstance(chosen_keys(holes, start, end, "t"), Refusal)
    assert isinstance(chosen_keys([], None, None, "t"), Refusal)
    assert is_within(b"", b"", (b"", b""))
    assert not is_within(b"", b"", (b"", b"z"))


def test_a_process_that_its_row_does_not_name_keeps_keys_from_being_given_away() -> None:
    model, table = table_of([(b"", b"")])
    model.damages.add(Damage(RowKind.SERVER, "server", "address", "7", "a test", "s1,5"))
    assert keys_problem(model, table) is None, "it is a member, and has to list its regions, or is fenced"
    model.damages.add(Damage(RowKind.SERVER, "server", "name", "", "a test", ""))
    assert "a process whose row cannot be read may serve keys of table 't'" in str(keys_problem(model, table))
    refusal = adoption_problem(model, 9, table, given=True)
    assert refusal is not None
    assert (refusal.remedy, keys_remedy(model, table)) == (PROCESS_MEND, PROCESS_MEND), "also where a region is damaged"


def test_a_refusal_names_a_damaged_region_of_the_table_and_of_no_other() -> None:
    model, table = table_of([(b"", b"c")])
    model.damages.add(Damage(RowKind.REGION, "region 7", "state", "99", "a test", table="u", region=7))
    model.damages.add(Damage(RowKind.REGION, "region 8", "state", "99", "a test", table="t", region=8))
    refusal = adoption_problem(model, 9, table, given=True)
    assert refusal is not None
    assert "'regent regions adopt 8 --table t' comes first, or forget 8" in refusal.remedy


def test_regions_that_share_keys_are_parted_only_where_the_order_of_keys_stays() -> None:
    _, table = table_of([(b"a", b"f"), (b"c", b"h"), (b"h", b"")])
    first, second, third = table.regions
    assert "region t#2 has keys before 'd'" in str(key_problem(first, b"d"))
    assert (key_problem(first, b"c"), key_problem(second, b"f")) == (None, None)
    assert (apart_problem([first]), apart_problem([third, second])) == (None, None)
    assert apart_problem([first, third]) == "region t#1 shares keys with region t#2"
    _, table = table_of([(b"a", b"f"), (b"a", b"h")])
    assert apart_problem([table.regions[1]]) == "region t#2 shares keys with region t#1"


def test_a_region_in_whose_data_a_lost_one_begins_is_not_stored_again() -> None:
    model, table = table_of([(b"", b"c")])
    assert adoption_problem(model, 7, table, given=True) is None
    model.sources[10] = (Source(7, b"c", b"", 3, 9),)
    refusal = adoption_problem(model, 7, table, given=True)
    assert refusal is not None
    assert "the data of region 10 begins as that of region 7" in refusal.what
    assert "regent regions adopt 10" in refusal.remedy
    assert adoption_problem(model, 10, table, given=True) is None


def test_a_lost_region_gets_keys_within_those_of_what_it_refers_to() -> None:
    model, _ = table_of([(b"", b"a")])
    assert known_keys(model, 10) is None
    model.sources[10] = (Source(7, b"c", b"d", 3, 9), Source(8, b"d", b"f", 3, 9))
    model.sources[11] = (Source(7, b"c", b"", 3, 9),)
    assert (known_keys(model, 10), known_keys(model, 11)) == ((b"c", b"f"), (b"c", b""))
    holes = [(b"a", b"")]
    assert chosen_keys(holes, None, None, "t", known_keys(model, 10)) == (b"c", b"f")
    assert chosen_keys(holes, None, None, "t", known_keys(model, 11)) == (b"c", b"")
    assert chosen_keys(holes, b"d", None, "t", known_keys(model, 10)) == (b"d", b"f")
    for start, end in ((b"a", b"f"), (b"c", b"g"), (b"c", b"")):
        assert isinstance(chosen_keys(holes, start, end, "t", known_keys(model, 10)), Refusal)
    refusal = chosen_keys([(b"a", b"c")], None, None, "t", known_keys(model, 10))
    assert isinstance(refusal, Refusal)
    assert "had keys within those from c to f" in refusal.what


def test_keys_behind_the_last_region_are_lost_also_where_nothing_is_noted() -> None:
    for state in (TableState.ENABLED, TableState.DISABLED):
        model, _ = table_of([(b"", b"c")], state)
        assert "has 1 of its regions" in (keys_lost(model, "t") or "")
        assert keys_lost(model, "u") is None
        model.tables["t"].regions[-1].end = b""
        assert keys_lost(model, "t") is None
