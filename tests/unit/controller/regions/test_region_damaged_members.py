"""Which processes damaged rows name, and at which servers a region has to stay because of a row that names none."""

from __future__ import annotations

import pytest

from controller.regions import damaged
from controller.regions.damaged import Unknown
from metadata_store.catalog.judging import INT_MAX
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.model import Regions, Server
from state_machines.regions.states import ServerState


def damage(name: str, kind: RowKind = RowKind.SERVER) -> Damage:
    return Damage(kind, f"row {name}", "address", "'x'", "it is no address", name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a,1", ("a", 1)),
        (f"a,{INT_MAX}", ("a", INT_MAX)),
        ("a,b,7", ("a,b", 7)),
        (f"a,{INT_MAX + 1}", None),
        ("a,0", None),
        ("a,-1", None),
        ("a,x", None),
        ("a,\u0661", None),
        ("a,", None),
        (",1", None),
        ("a", None),
        ("", None),
    ],
)
def test_a_row_names_a_process_by_a_name_and_an_incarnation_that_can_be(name: str, key: tuple[str, int] | None) -> None:
    assert list(damaged.members([damage(name)])) == ([] if key is None else [key])
    assert bool(Unknown.of([damage(name)])) is (key is None)


def test_a_region_stays_at_each_server_that_a_row_may_name() -> None:
    named = Unknown.of([damage("a,x"), damage("b,1"), damage("c,0"), damage("d,x", RowKind.BURIED)])
    assert [named.may_be(name) for name in "abcd"] == [True, False, True, False]
    for rows in ([damage("")], [damage("b,1"), damage(""), damage("a,x")]):
        unknown = Unknown.of(rows)
        assert unknown
        assert [unknown.may_be(name) for name in "ab"] == [True, True]
    assert not Unknown.of([damage("b,1"), damage("", RowKind.BURIED), damage("", RowKind.TABLE)])
    assert not Unknown.of([])


def test_damaged_members_and_names_are_kept_and_sound_members_stay_as_they_are() -> None:
    model = Regions()
    sound = model.servers["b", 1] = Server("b", 1, "b:1", "2.0", ServerState.ONLINE, {})
    rows = [damage("a,3"), damage("b,1"), damage("c,x"), damage("", RowKind.BURIED)]
    rows += [damage("d", RowKind.BURIED), damage("t,1", RowKind.TABLE), damage("e", RowKind.BURIED)]
    damaged.keep_away(model, rows)
    assert model.servers.keys() == {("a", 3), ("b", 1)}
    assert model.servers["b", 1] is sound
    assert model.servers["a", 3].state is ServerState.ONLINE
    assert model.buried == {"d": INT_MAX, "e": INT_MAX}
