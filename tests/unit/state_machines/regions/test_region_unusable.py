"""Rules of rows that cannot be read: each kind has one command, and only what nothing names is removed by its place."""

from __future__ import annotations

import pytest

from state_machines.regions.changes import is_process
from state_machines.regions.damage import CLOSED, LEASE_PLACE, NO_TABLE, Damage, RowKind
from state_machines.regions.entities import Server, Table
from state_machines.regions.findings import COPY, Refusal
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState, TableKind, TableState
from state_machines.regions.table_rows import AdoptedRow, Stored
from state_machines.regions.unusable import mend_of, readoption_problem, removal_problem

K = RowKind
ROW = AdoptedRow(TableKind.USER, TableState.ENABLED, ())
PLACE = "row 3 of table x"
MENDS = [
    (K.NAMESPACE, "n", 0, "regions remove-row"),
    (K.NAMESPACE, "", 0, "regions remove-row"),
    (K.TABLE, "t", 0, "tables adopt t"),
    (K.TABLE, "no name", 0, "regions remove-row"),
    (K.TABLE, "", 0, "regions remove-row"),
    (K.REGION, "", 7, "regions adopt 7"),
    (K.REGION, "s1,5", 7, "servers recover s1,5"),
    (K.REGION, "", 0, "regions remove-row"),
    (K.SERVER, "s1,5", 0, "servers expire s1,5"),
    (K.SERVER, "s1,0", 0, "regions remove-row"),
    (K.SERVER, "", 0, "regions remove-row"),
    (K.BURIED, "s1", 0, "servers forget s1"),
    (K.BURIED, "", 0, "regions remove-row"),
    (K.MARK, "weight of s1", 0, "regions remove-row"),
    (K.MARK, "", 0, "regions remove-row"),
    (K.HEIR, "#7", 7, "regions forget 7"),
    (K.HEIR, "", 0, "regions remove-row"),
    (K.PARENT, "#7", 7, "regions forget 7"),
    (K.PARENT, "", 0, "regions remove-row"),
    (K.SNAPSHOT, "s", 0, "snapshots delete s"),
    (K.SNAPSHOT, "", 0, "regions remove-row"),
    (K.SNAPSHOT_PART, "0 of s", 0, "snapshots delete s"),
    (K.SNAPSHOT_PART, "", 0, "regions remove-row"),
    (K.PUBLISHED, "acl", 0, "published put acl"),
    (K.PUBLISHED, "", 0, "regions remove-row"),
]


def damage(kind: RowKind, name: str = "", region: int = 0, why: str = "it is no text", place: str = PLACE) -> Damage:
    return Damage(kind, place, "field", "7", why, name, "t" if kind is K.REGION else "", region)


@pytest.mark.parametrize(("kind", "name", "region", "command"), MENDS)
def test_each_row_has_one_command_and_goes_by_its_place_only_where_there_is_no_other(
    kind: RowKind, name: str, region: int, command: str
) -> None:
    one = damage(kind, name, region)
    mend, refusal = mend_of(one), removal_problem(Regions(), one, PLACE, 0.0)
    assert f"'regent {command}" in mend
    if command == "regions remove-row":
        assert mend == f"{COPY}'regent regions remove-row \"{PLACE}\"' removes it"
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.what, command in refusal.remedy) == (f"what the row is about is known ({one})", True)


def test_the_table_of_this_page_has_each_kind() -> None:
    assert {one[0] for one in MENDS} == set(RowKind)


@pytest.mark.parametrize("kind", list(RowKind))
def test_a_row_that_is_closed_to_the_daemon_has_its_acl_repaired(kind: RowKind) -> None:
    one = damage(kind, "s", 7, f"{CLOSED}NO_AUTH")
    assert mend_of(one) == "repair its ACL, then restart the daemon"
    assert removal_problem(Regions(), one, PLACE, 0.0) == Refusal(
        f"the row is closed to this daemon ({one})", "repair its ACL, then restart the daemon"
    )


def test_a_path_is_a_word_as_it_is() -> None:
    one = damage(K.MARK, place="/regent/regions/marks/weight,s1")
    assert mend_of(one) == f"{COPY}'regent regions remove-row /regent/regions/marks/weight,s1' removes it"


def test_the_regions_of_a_lost_table_name_that_as_one_of_three_ways() -> None:
    mend = mend_of(damage(K.REGION, "", 7, NO_TABLE))
    for command in ("tables adopt t", "regions adopt 7 --table TABLE", "regions forget 7"):
        assert f"'regent {command}'" in mend
    no_name = damage(K.REGION, "", 7, NO_TABLE)._replace(table="no name")
    assert "tables adopt" not in mend_of(no_name)


def test_what_the_daemon_has_stored_anew_as_it_began_is_right_after_a_restart() -> None:
    one = damage(K.MARK, "regime of servers", place=LEASE_PLACE)
    assert mend_of(one) == "restart the daemon: it has stored it anew"
    assert removal_problem(Regions(), one, LEASE_PLACE, 0.0) is not None


def test_no_row_is_removed_that_is_not_left_out() -> None:
    refusal = removal_problem(Regions(), None, "row 9 of table mark", 0.0)
    assert refusal == Refusal(
        "no row at 'row 9 of table mark' is left out", "'regent regions report --kind damaged' names the place of each"
    )


def test_the_row_of_a_process_goes_after_its_regions_and_its_lease() -> None:
    model, one = Regions(), damage(K.SERVER)
    model.strangers = {("s1", 5): 2, ("s0", 9): 1}
    refusal = removal_problem(model, one, PLACE, 0.0)
    assert refusal is not None
    assert refusal.remedy == "'regent servers recover s0,9' comes first, then restart the daemon"
    model.strangers = {}
    refusal = removal_problem(model, one, PLACE, 2.6)
    assert refusal is not None
    assert refusal.remedy == "repeat it in 3 s: until then each process has come, or has stopped"
    assert removal_problem(model, one, PLACE, 0.0) is None
    refusal = removal_problem(model, one, PLACE, None)
    assert refusal is not None
    assert refusal.remedy.startswith("end that process, and repeat it with --ended")
    assert removal_problem(model, one, PLACE, None, is_ended=True) is None
    model.strangers = {("s1", 5): 2}
    assert removal_problem(model, one, PLACE, None, is_ended=True) is not None, "its regions come first"
    model.strangers = {}
    assert removal_problem(model, damage(K.MARK), PLACE, 2.6) is None, "it is no process"


@pytest.mark.parametrize(("name", "is_one"), [("s1,5", True), ("a,b,1", True), ("s1,0", False), ("s1", False)])
def test_a_process_is_named_by_its_name_and_incarnation(name: str, is_one: bool) -> None:
    assert is_process(name) is is_one


def test_the_row_of_a_table_is_stored_again_where_it_or_its_regions_are_left_out() -> None:
    model = Regions()
    assert "no row of a table 't'" in str(readoption_problem(model, "t", ROW))
    model.damages.add(damage(K.TABLE, "t"))
    assert readoption_problem(model, "t", ROW) is None
    model.add_table(Table("t", TableKind.USER, TableState.ENABLED, {}, []))
    assert "table 't' is there" in str(readoption_problem(model, "t", ROW))
    model = Regions()
    model.damages.add(damage(K.REGION, "", 7, NO_TABLE))
    model.damages.leave_out(8, "t")
    assert (readoption_problem(model, "t", ROW), model.damages.left_out_of("t")) == (None, 2)
    model.damages.add(damage(K.TABLE, "t", why=f"{CLOSED}NO_AUTH"))
    assert "the row is closed to this daemon" in str(readoption_problem(model, "t", ROW))


def test_the_row_of_a_table_is_stored_again_once() -> None:
    model = Regions()
    model.damages.add(damage(K.TABLE, "t"))
    model.damages.stored.put_table("t", 12, ROW)
    assert readoption_problem(model, "t", ROW) is None, "it is done"
    refusal = readoption_problem(model, "t", ROW._replace(options=(("ttl", "60"),)))
    assert refusal == Refusal(
        "the row of table 't' is stored by procedure 12, with kind user, state enabled and no options",
        "restart the daemon, then 'regent tables modify t' changes options",
    )


def test_what_was_stored_in_this_term_waits_for_a_restart() -> None:
    stored = Stored()
    table, lacks, owned = damage(K.TABLE, "t"), damage(K.REGION, "", 7, NO_TABLE), damage(K.REGION, "s1,5", 7)
    own = damage(K.REGION, "", 8)
    before = [mend_of(one, stored) for one in (table, lacks, owned, own)]
    assert before == [mend_of(one) for one in (table, lacks, owned, own)]
    stored.put_table("t", 12, ROW)
    stored.servers.add("s1,5")
    assert {mend_of(one, stored) for one in (table, lacks, owned)} == {"its row is stored: restart the daemon"}
    others = (own, damage(K.TABLE, "u"), damage(K.REGION, "s1,6", 7), damage(K.SERVER, "s1,5"))
    assert [mend_of(one, stored) for one in others] == [mend_of(one) for one in others]


def test_the_damage_of_a_row_goes_with_all_that_it_said() -> None:
    model = Regions()
    damages = model.damages
    for one in (damage(K.NAMESPACE, "n"), damage(K.REGION), damage(K.BURIED, "s1"), damage(K.SERVER, "s2,5")):
        damages.add(one._replace(place=f"row {len(damages.rows)} of table x"))
    assert (damages.namespaces, damages.of_table("t") != "") == ({"n"}, True)
    for place in ("row 0 of table x", "row 1 of table x"):
        found = damages.at(place)
        assert found is not None
        damages.drop_row(found)
        assert damages.at(place) is None
    assert (damages.namespaces, damages.of_table("t")) == (set(), "")
    model.forget("s1")
    model.servers["s2", 5] = Server("s2", 5, "", "", ServerState.ONLINE, {})
    model.drop_server(("s2", 5))
    assert (damages.rows, damages.count.total()) == ([], 0)
