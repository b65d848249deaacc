"""Small parts of the regions' domain: what they tell apart, and what they keep of several values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controller.regions import server_lists
from controller.regions.endings import GivenUp
from controller.regions.procedures.assign import wish
from controller.regions.procedures.namespaces import undeletable
from controller.regions.procedures.servers import unforgettable
from controller.regions.server_lists import Contradictions
from state_machines.regions import marks
from state_machines.regions.changes import abandoned
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.keys import Keys
from state_machines.regions.marks import LeftOut, LostPart, LostParts, Mark, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

S = RegionState


def table_of(model: Regions, name: str, *starts: bytes) -> list[Region]:
    """Adds a table with regions that are open."""
    table = Table(name, TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    first = len(model.regions) + 1
    some = [Region(first + at, table, start, b"", S.OPEN) for at, start in enumerate(starts)]
    model.add_regions(table, some)
    return some


def test_parts_of_a_log_that_are_left_out_one_after_the_other_are_all_kept_with_the_first_regions() -> None:
    first = LostParts((LeftOut((LostPart("p1", 1),), "eve", "lost"),), 7, (1, 2))
    second = LostParts((LeftOut((LostPart("p1", 1), LostPart("p2", 2)), "eve", "lost"),), 3, (3,))
    third = LostParts((LeftOut((LostPart("p3", 3),), "eve", "burnt"),), 1, (4,))
    both = marks.added(first, second)
    assert both == LostParts((LeftOut((LostPart("p1", 1), LostPart("p2", 2)), "eve", "lost"),), 7, (1, 2))
    assert marks.latest(both, first) == LeftOut((LostPart("p2", 2),), "eve", "lost"), "p1 was told before"
    assert marks.latest(both, both) is None
    assert [one.reason for one in marks.added(both, third).left_out] == ["lost", "burnt"]


def test_regions_that_a_crash_leaves_are_together_by_their_tables() -> None:
    model = Regions()
    some = [*table_of(model, "t", b"", b"m"), *table_of(model, "u", b"", b"f", b"z")]
    closed, tables = abandoned(sorted(some, key=lambda one: one.start))
    assert (closed, [[one.table.name for one in group] for group in tables]) == ([], [["t"] * 2, ["u"] * 3])


def test_regions_that_come_in_any_order_are_found_by_their_keys() -> None:
    model = Regions()
    some = table_of(model, "t", b"", b"m", b"f")
    assert model.located(model.tables["t"], b"g") is some[2]


def test_a_part_takes_the_region_of_any_of_its_ancestors() -> None:
    model = Regions()
    [region] = table_of(model, "t", b"")
    model.attach(region, 9)
    assert (model.take(region, 1, (5,)), model.take(region, 1, (5, 9)), region.pid) == (False, True, 1)


def test_keys_that_two_regions_share_end_with_the_first_one_of_them() -> None:
    keys = Keys("t")
    assert keys.next(1, b"", b"m") is None
    gap = keys.next(2, b"f", b"z")
    assert gap is not None
    assert (gap.start, gap.end, gap.overlap, gap.regions) == (b"f", b"m", True, (1, 2))
    inside = keys.next(3, b"g", b"h")
    assert inside is not None
    assert (inside.start, inside.end) == (b"g", b"h")
    assert keys.joint == b"z", "the second one reaches farther than the third one"


def test_a_region_with_a_pin_goes_there_and_not_to_the_server_that_it_is_held_for() -> None:
    model = Regions()
    [region] = table_of(model, "t", b"")
    region.server = Server("a", 1, "", "", ServerState.FENCED, {})
    env = SimpleNamespace(model=model, wall_ms=lambda: 100, now_ms=lambda: 100, given_up=GivenUp())
    model.marks.put(Mark(MarkKind.HOLD, "a", until_ms=200))
    assert wish(env, region).to == "a"  # type: ignore[arg-type]
    model.marks.put(Mark(MarkKind.PIN, str(region.id), "b"))
    assert wish(env, region).to == "b"  # type: ignore[arg-type]


def test_a_name_whose_process_has_crashed_is_not_forgotten_before_that_is_dealt_with() -> None:
    model = Regions()
    model.buried["a"] = 1
    assert unforgettable(model, "a") is None
    model.servers["a", 2] = Server("a", 2, "", "", ServerState.CRASHED, {})
    assert "server a,2 is a member" in (unforgettable(model, "a") or "")


def test_a_namespace_with_a_table_that_is_left_out_stays() -> None:
    model = Regions()
    model.namespaces.add("n")
    assert undeletable(model, "n") is None
    model.add_table(Table("n:u", TableKind.USER, TableState.ENABLED, {}, []))
    assert "namespace 'n' has 1 table: delete" in (undeletable(model, "n") or "")
    model.drop_table("n:u")
    model.damages.add(Damage(RowKind.TABLE, "table n:t", "state", "9", "unknown", "n:t"))
    assert "n:t" in (undeletable(model, "n") or "")


def test_of_regions_below_a_listed_token_those_are_due_that_are_there_and_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_lists, "NOTED_MAX", 3)
    model, found = Regions(), Contradictions()
    rests, moving, dropped, beyond = table_of(model, "t", b"", b"f", b"m", b"z")
    for region in (rests, moving, dropped, beyond):
        found.note(region.id, region, 5, "a,1")
    for token in (7, 6):
        found.note(rests.id, rests, token, "b,1")
    assert [found.token(one.id) for one in (rests, moving, dropped, beyond)] == [7, 5, 5, 0]
    model.attach(moving, 9)
    del model.regions[dropped.id]
    assert found.due(model.regions, 10) == [rests]
    model.detach(moving, 9)
    assert found.due(model.regions, 10) == [rests, moving]
    assert found.due(model.regions, 1) == [rests]
    rests.token = 8
    assert found.due(model.regions, 10) == [moving]
