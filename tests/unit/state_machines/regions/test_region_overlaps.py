"""Overlaps of two and three regions: what a report names is accepted, and done in turn it leaves a table whole."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from typing import Final

import pytest

from state_machines.regions import keys
from state_machines.regions.damage import Gap
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.findings import COPY, Finding, FindingKind, Scope
from state_machines.regions.heirs import apart_problem, halves, key_problem
from state_machines.regions.keys import Without
from state_machines.regions.layout import key_of
from state_machines.regions.model import Regions
from state_machines.regions.overlaps import grown_from, opening_mend, served_beside
from state_machines.regions.report import Judge
from state_machines.regions.reshaping import reshape
from state_machines.regions.shapes import ParentRow
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

S = RegionState
BOUNDS: Final = [b"", b"b", b"c", b"d", b"e", b""]
"""Keys at which regions begin and end, by the numbers of a range."""
RANGES: Final = [(one, other) for one in range(5) for other in range(one + 1, 6)]
STEPS_MAX: Final = 12


class Store:
    """A model to which commands are given as operators give them. ``states``: of its regions."""

    def __init__(self, ranges: tuple[tuple[int, int], ...], states: tuple[RegionState, ...]) -> None:
        self.model = Regions()
        self.table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
        self.server = Server("a", 1, "a:1", "", ServerState.ONLINE, {}, here=True)
        self.model.add_table(self.table)
        self.model.namespaces.add("default")
        self.model.servers[self.server.key] = self.server
        self.next_id = len(ranges) + 1
        made = []
        for at, ((start, end), state) in enumerate(zip(ranges, states, strict=True), 1):
            one = Region(at, self.table, BOUNDS[start], BOUNDS[end], state)
            if state is S.OPEN:
                one.server = self.server
                self.server.regions[one.id] = one
            made.append(one)
        self.model.add_regions(self.table, made)
        for gap in self.gaps():
            self.model.damages.add_gap(gap)

    def gaps(self) -> Iterator[Gap]:
        nothing = Region(0, self.table, b"", b"", S.CLOSED)
        found = Without(self.table, nothing)
        for _ in found.parts():
            pass
        yield from found.gaps

    def overlaps(self) -> list[Finding]:
        judge = Judge(self.model, Scope(kind=FindingKind.OVERLAP))
        for _ in judge.of_keys():
            pass
        starts = [one.start for one in self.table.regions]
        assert starts == sorted(starts)
        return judge.found.listed

    def problem(self, words: list[str]) -> str | None:
        """Returns why a command is refused."""
        region = self.model.regions[int(words[3])]
        match words[2]:
            case "forget":
                others = Without(self.table, region)
                for _ in others.parts():
                    pass
                return None if others.missing is None else f"{region} is the only one with {others.missing}"
            case "split":
                if region.state is not S.OPEN:
                    return f"{region} is {region.state.name}"
                return key_problem(region, key_of(words[5])) or apart_problem([region])
            case "unassign":
                return None if region.state is S.OPEN else f"{region} is {region.state.name}"
            case _:
                beside = served_beside(self.model, region)
                return None if beside is None and region.state is S.CLOSED else f"{beside} serves keys of {region}"

    def does(self, words: list[str]) -> None:
        region = self.model.regions[int(words[3])]
        match words[2]:
            case "forget":
                others = Without(self.table, region)
                for _ in others.parts():
                    pass
                self.model.drop(region)
                self.model.damages.put_gaps("t", others.gaps)
                for _ in self.model.damages.settled("t"):
                    pass
            case "split":
                self._split(region, key_of(words[5]))
            case "unassign":
                self.model.move(region, S.CLOSING, self.server, 0)
                self.model.move(region, S.CLOSED, None, 0)
            case _:
                self.model.move(region, S.OPENING, self.server, 0)
                self.model.move(region, S.OPEN, self.server, 0)

    def _split(self, region: Region, key: bytes) -> None:
        ids, self.next_id = (self.next_id, self.next_id + 1), self.next_id + 2
        for state in (S.SPLITTING, S.CLOSING):
            self.model.move(region, state, self.server, 0)
        self.model.move(region, S.CLOSED, None, 0)
        heirs = [
            Region(id_, self.table, *bounds, S.CLOSED) for id_, bounds in zip(ids, halves(region, key), strict=True)
        ]
        parent = ParentRow(region.id, "t", region.start, region.end, int(S.SPLIT), ids, 1, 1)
        reshape(self.model, [parent], heirs, {}, 0)
        for one in heirs:
            self.model.move(one, S.OPENING, self.server, 0)
            self.model.move(one, S.OPEN, self.server, 0)


def cases() -> Iterator[tuple[tuple[int, int], ...]]:
    for count in (2, 3):
        for some in combinations_with_replacement(RANGES, count):
            covered = {at for start, end in some for at in range(start, end)}
            if covered == set(range(5)):
                yield some


def words_of(mend: str) -> list[str]:
    found = re.findall(r"regent regions (?:forget|split|assign|unassign) \d+(?: or \d+)*(?: --key \w+)?", mend)
    assert found, mend
    return shlex.split(found[0])


@pytest.mark.parametrize("count", [2, 3])
def test_what_a_report_names_for_an_overlap_is_accepted_and_in_turn_leaves_none(count: int) -> None:
    met: set[str] = set()
    for ranges in cases():
        if len(ranges) != count:
            continue
        for states in product((S.OPEN, S.CLOSED), repeat=count):
            store = Store(ranges, states)
            for _ in range(STEPS_MAX):
                findings = store.overlaps()
                if not findings:
                    break
                for one in findings:
                    words = words_of(one.mend)
                    problem = store.problem(words)
                    assert problem is None, (ranges, states, one.what, one.mend, problem)
                words = words_of(findings[0].mend)
                met.add(words[2])
                store.does(words)
            assert not store.overlaps(), (ranges, states)
            assert not list(store.gaps())
    assert met == {"forget", "split", "assign", "unassign"}


def test_a_region_that_several_others_cover_together_is_forgotten_and_none_of_these_is_split() -> None:
    store = Store(((0, 2), (2, 5), (1, 4)), (S.OPEN, S.OPEN, S.CLOSED))
    assert {tuple(words_of(one.mend)) for one in store.overlaps()} == {("regent", "regions", "forget", "3")}


def taken(store: Store) -> list[str]:
    """Does what the first finding names until none is left; returns the commands."""
    done: list[str] = []
    while findings := store.overlaps():
        assert len(done) < STEPS_MAX + len(BOUNDS)
        words = words_of(findings[0].mend)
        assert store.problem(words) is None
        done.append(" ".join(words[2:]))
        store.does(words)
    return done


@pytest.mark.parametrize("end", [5, 4, 3])
def test_a_region_that_has_grown_over_others_is_parted_and_the_others_stay(end: int) -> None:
    store = Store(((0, end), (1, 2), (2, 4), (4, 5)), (S.OPEN,) * 4)
    for one in store.overlaps():
        assert one.mend.startswith(f"{COPY}'regent regions split 1 --key b'")
        inner = one.regions[1] != 3 or end > 3
        assert (f"else 'regent regions forget {one.regions[1]}'" in one.mend) is inner
    store.does(["regent", "regions", "split", "1", "--key", "b"])
    assert {tuple(words_of(one.mend)) for one in store.overlaps()} == {("regent", "regions", "forget", "6")}
    assert taken(store) == ["forget 6"]
    assert [one.id for one in store.table.regions] == [5, 2, 3, 4]


def test_a_region_that_has_grown_over_one_other_region_is_parted_first() -> None:
    store = Store(((0, 5), (2, 5)), (S.OPEN, S.OPEN))
    [finding] = store.overlaps()
    assert finding.mend.startswith(f"{COPY}'regent regions split 1 --key c'")
    assert (
        "else 'regent regions forget 2' removes 2, OPEN with sequence 0, where the others have no data" in finding.mend
    )


def test_a_region_with_more_keys_than_those_within_it_has_not_grown_over_them() -> None:
    for ranges in (((0, 5), (1, 2), (2, 4)), ((0, 5), (1, 2), (3, 5))):
        assert grown_from(Store(ranges, (S.OPEN,) * 3).table.regions[0]) is None


def test_a_region_that_has_grown_over_many_others_is_parted_with_two_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [b"", *(b"%03d" % one for one in range(1, 60)), b""]
    monkeypatch.setattr(sys.modules[__name__], "BOUNDS", some)
    store = Store(((0, 60), *((one, one + 1) for one in range(1, 60))), (S.OPEN,) * 60)
    assert len(store.overlaps()) == 59
    assert taken(store) == ["split 1 --key 001", "forget 62"]


def test_a_region_that_has_grown_and_is_closed_is_opened_before_it_is_parted() -> None:
    store = Store(((0, 5), (1, 2), (2, 5)), (S.CLOSED, S.OPEN, S.OPEN))
    assert taken(store) == ["unassign 2", "unassign 3", "assign 1", "split 1 --key b", "forget 5"]
    assert [opening_mend(store.model, store.model.regions[one]) for one in (2, 3)] == [
        "'regent regions assign 2' opens it",
        "'regent regions assign 3' opens it",
    ]
    store = Store(((0, 5), (1, 2), (2, 5)), (S.CLOSED,) * 3)
    assert "'regent regions assign 1' comes first" in opening_mend(store.model, store.model.regions[2])
    store.table.state = TableState.DISABLED
    assert all("'regent tables enable t' comes first" in one.mend for one in store.overlaps())


def test_a_split_is_refused_where_another_region_begins_with_the_same_key() -> None:
    for second in ((1, 5), (1, 3), (1, 4)):
        store = Store(((0, 1), (1, 5), second), (S.OPEN,) * 3)
        for region in store.table.regions[1:]:
            problem = key_problem(region, b"d") or apart_problem([region])
            assert problem is not None, (second, region)
    store = Store(((0, 1), (1, 5), (1, 4)), (S.OPEN,) * 3)
    assert "'regent regions forget 3' comes first" in str(key_problem(store.table.regions[1], b"c"))


def test_a_region_is_dropped_wherever_it_is_in_its_table() -> None:
    store = Store(((0, 5), (1, 3), (1, 3)), (S.CLOSED,) * 3)
    gone = store.table.regions[2]
    store.table.regions.remove(gone)
    store.model.drop(gone)
    assert gone.id not in store.model.regions


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_table_is_followed_while_its_regions_are_split(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "TOGETHER", 1)
    store = Store(((0, 2), (2, 4), (4, 5), (2, 4)), (S.OPEN,) * 4)
    region = store.model.regions[4]
    others = Without(store.table, region)
    for number, _ in enumerate(others.parts()):
        if number == at:
            one = store.model.regions[1]
            store.does(["regent", "regions", "split", "1", "--key", "b"])
            assert one not in store.table.regions
    assert others.missing is None
