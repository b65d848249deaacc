"""A committed split or merge replaces regions by others with the same keys, and nothing else of the model changes."""

from __future__ import annotations

from random import Random

import pytest

from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.findings import COPY, Refusal
from state_machines.regions.model import Regions
from state_machines.regions.references import needed_by, snapshot_needed_by
from state_machines.regions.reshaping import no_room, reshape
from state_machines.regions.shapes import HEIRS_MAX, ParentRow, Source
from state_machines.regions.states import IN_TRANSITION, RegionState, ServerState, TableKind, TableState

S = RegionState
KEYS = [b"", b"b", b"d", b"f", b"h", b""]


def a_model(state: RegionState = S.CLOSED) -> tuple[Regions, Table]:
    """Returns a model with a table of five regions: 1 to 5."""
    model, table = Regions(), Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    model.add_regions(table, [a_region(at + 1, table, KEYS[at], KEYS[at + 1], state) for at in range(5)])
    return model, table


def a_region(id_: int, table: Table, start: bytes, end: bytes, state: RegionState = S.CLOSED) -> Region:
    return Region(id_, table, start, end, state)


def parent_of(region: Region, *heirs: int, state: RegionState = S.SPLIT) -> ParentRow:
    return ParentRow(region.id, region.table.name, region.start, region.end, state, heirs, region.token, 0)


def source_of(region: Region | ParentRow) -> Source:
    return Source(region.id, region.start, region.end, region.token, region.sequence)


class Told:
    """Records the transitions that an observer is told."""

    def __init__(self) -> None:
        self.moves: list[tuple[int, RegionState, RegionState]] = []

    def attached(self, region: Region, pid: int) -> None:
        """Takes nothing."""

    def moved(self, region: Region, before: RegionState, _: Server | None) -> None:
        self.moves.append((region.id, before, region.state))


@pytest.mark.seed("S1-31", "S1-64")
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_split_puts_two_heirs_where_their_parent_was(at: int) -> None:
    model, table = a_model()
    model.observer = told = Told()
    parent = table.regions[at]
    model.attach(parent, 7)
    row, middle = parent_of(parent, 10, 11), parent.start + b"5"
    heirs = [a_region(10, table, parent.start, middle), a_region(11, table, middle, parent.end)]
    reshape(model, [row], heirs, {one.id: (source_of(row),) for one in heirs}, 5)
    assert [one.id for one in table.regions] == [*range(1, at + 1), 10, 11, *range(at + 2, 6)]
    assert set(model.regions) == {one.id for one in table.regions}
    assert (model.parents, model.transit, table.transit) == ({row.id: row}, {}, {})
    assert model.sources == {10: (source_of(row),), 11: (source_of(row),)}
    assert table.count(S.CLOSED) == 6
    assert table.count(S.SPLIT) == 0
    assert told.moves == [(parent.id, S.CLOSED, S.SPLIT)]
    assert model.located(table, middle) is heirs[1]


def test_a_merge_puts_one_heir_where_its_parents_were() -> None:
    model, table = a_model()
    rows = [parent_of(one, 10, state=S.MERGED) for one in table.regions[1:4]]
    sources = tuple(source_of(one) for one in rows)
    reshape(model, rows, [a_region(10, table, b"b", b"h")], {10: sources}, 5)
    assert [one.id for one in table.regions] == [1, 10, 5]
    assert [one.id for one in model.parents.values()] == [2, 3, 4]
    assert model.sources == {10: sources}
    assert [table.count(state) for state in (S.CLOSED, S.MERGED)] == [3, 0]


@pytest.mark.parametrize(
    ("parents", "heirs", "why"),
    [
        ([2], [(b"b", b"c"), (b"c", b"e")], "have other keys"),
        ([2], [(b"a", b"c"), (b"c", b"d")], "have other keys"),
        ([2], [(b"b", b"c"), (b"c2", b"d")], "have a hole"),
        ([2, 4], [(b"b", b"h")], "have a hole"),
        ([3, 2], [(b"b", b"f")], "have a hole"),
        ([5, 1], [(b"h", b"b")], "have a hole"),
    ],
)
def test_regions_with_other_keys_are_refused_and_nothing_changes(
    parents: list[int], heirs: list[tuple[bytes, bytes]], why: str
) -> None:
    model, table = a_model()
    rows = [parent_of(model.regions[one], 10) for one in parents]
    with pytest.raises(ValueError, match=why):
        reshape(model, rows, [a_region(10 + at, table, *keys) for at, keys in enumerate(heirs)], {}, 5)
    assert [one.id for one in table.regions] == list(model.regions) == [1, 2, 3, 4, 5]
    assert not model.parents


def test_parents_that_the_table_does_not_have_side_by_side_are_refused() -> None:
    model, table = a_model()
    stranger = parent_of(a_region(9, table, b"b", b"d"), 10)
    with pytest.raises(ValueError, match="do not lie side by side in table t"):
        reshape(model, [stranger], [a_region(10, table, b"b", b"d")], {}, 5)
    assert not model.parents


@pytest.mark.parametrize("seed", range(10))
def test_keys_have_no_hole_and_counts_are_right_after_any_splits_and_merges(seed: int) -> None:
    draw, number = Random(seed), 100
    model, table = a_model()
    server = Server("a", 1, "a:1", "", ServerState.ONLINE, {}, here=True)
    for now_ms in range(60):
        at = draw.randrange(len(table.regions))
        some = table.regions[at : at + draw.randrange(1, 4)]
        for one in some:
            if one.state is S.OPEN:
                model.attach(one, now_ms + 1)
                for state in (S.SPLITTING, S.CLOSING):
                    model.move(one, state, server, now_ms)
                model.move(one, S.CLOSED, None, now_ms)
        first, end = some[0].start, some[-1].end
        cuts = [first] if len(some) > 1 else [first, first + bytes([draw.randrange(1, 255)])]
        if len(cuts) == 2 and end and cuts[1] >= end:
            continue
        heirs = [
            a_region(number + at, table, start, stop)
            for at, (start, stop) in enumerate(zip(cuts, [*cuts[1:], end], strict=True))
        ]
        number += len(heirs)
        state = S.SPLIT if len(some) == 1 else S.MERGED
        reshape(model, [parent_of(one, *(heir.id for heir in heirs), state=state) for one in some], heirs, {}, now_ms)
        opened = draw.choice(heirs)
        model.move(opened, S.OPENING, server, now_ms)
        model.move(opened, S.OPEN, server, now_ms)
        joints = [(one.end, after.start) for one, after in zip(table.regions, table.regions[1:], strict=False)]
        assert all(end == start and end for end, start in joints)
        assert (table.regions[0].start, table.regions[-1].end) == (b"", b"")
        assert model.regions == {one.id: one for one in table.regions}
        states = [one.state for one in table.regions]
        assert {one: table.count(one) for one in S} == {one: states.count(one) for one in S}
        moving = {id_ for id_, one in model.regions.items() if one.pid or one.state in IN_TRANSITION}
        assert set(model.transit) == set(table.transit) == moving
        assert set(server.regions) == {one.id for one in table.regions if one.server is server}
    assert len(model.parents) > 20


def test_a_table_takes_its_parents_and_sources_with_it() -> None:
    model, table = a_model()
    other = Table("u", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(other)
    clone = a_region(50, other, b"", b"")
    model.add_regions(other, [clone])
    row = parent_of(table.regions[0], 10)
    model.sources[50] = (source_of(table.regions[1]),)
    elsewhere = row._replace(id=60, table="u")
    model.parents[60] = elsewhere
    reshape(model, [row], [a_region(10, table, b"", b"b")], {10: (source_of(row),)}, 5)
    model.drop_table("t")
    assert model.sources == {50: (source_of(parent_of(a_region(2, table, b"b", b"d"))),)}
    assert model.parents == {60: elsewhere}


def test_a_table_stays_while_another_one_may_need_its_data() -> None:
    model, table = a_model()
    other = Table("u", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(other)
    model.add_regions(other, [a_region(50, other, b"", b"")])
    assert needed_by(model, table) is None
    model.sources[50] = (source_of(table.regions[1]),)
    assert "table 't' is needed by region #50 of u" in (needed_by(model, table) or "")
    model.drop_last(other, 1)
    model.sources[50] = (source_of(table.regions[1]),)
    assert "needed by region #50 of a table" in (needed_by(model, table) or ""), "its region is left out"
    model.sources.clear()
    model.damages.add(Damage(RowKind.HEIR, "row 10 of table heir", "sources", "", "it is no list", "#10", region=10))
    forgets = f"{COPY}'regent regions forget 10' removes the row (row 10 of table heir)"
    snapshot = snapshot_needed_by(model, "nightly")
    assert snapshot == Refusal("snapshot 'nightly' may be needed by a region that is left out", forgets)
    assert needed_by(model, table) == f"table 't' may be needed by a region that is left out: {forgets}"
    model.damages.add(Damage(RowKind.HEIR, "row 11 of table heir", "id", "'x'", "it is no number"))
    assert str(needed_by(model, table)).endswith(", and so for 1 more of 'regent regions report --kind damaged'")


def test_more_heirs_and_parents_than_a_list_holds_are_refused() -> None:
    model, table = a_model()
    source, row = source_of(table.regions[0]), parent_of(table.regions[0], 10)
    model.sources = dict.fromkeys(range(HEIRS_MAX - 2), (source,))
    assert no_room(model, 2, 1) is None
    assert no_room(model, 3) == (
        "49,998 regions have no data of their own yet, and 3 more would be more than 50,000: wait until fewer do"
    )
    model.parents = dict.fromkeys(range(HEIRS_MAX), row)
    assert "regions wait until their data is discarded" in (no_room(model, 2, 1) or "")
